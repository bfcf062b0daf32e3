// Members of one consumer group, all in this process, and the trickle of records that they consume:
// what bench/rebalance.py asks to come, to go and to start anew, and whose stops it sums up.
//
//	rebalance create JSON     makes the topic
//	rebalance trickle JSON    a record into every partition, each interval, until stdin ends
//	rebalance members JSON    takes commands from stdin, a line each, and answers each by a line
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

type parameters struct {
	Bootstrap  string `json:"bootstrap"`
	Topic      string `json:"topic"`
	Group      string `json:"group"`
	Protocol   string `json:"protocol"`
	Members    int    `json:"members"`
	Partitions int    `json:"partitions"`
	// Milliseconds.
	Interval  int `json:"interval"`
	Session   int `json:"session"`
	Heartbeat int `json:"heartbeat"`
	Quiet     int `json:"quiet"`
}

func milliseconds(count int) time.Duration { return time.Duration(count) * time.Millisecond }

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func emit(value any) {
	text, err := json.Marshal(value)
	check(err)
	fmt.Println(string(text))
}

func client(p parameters, options ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.Bootstrap)}, options...)...)
	check(err)
	return c
}

func create(p parameters) {
	a := kadm.NewClient(client(p))
	_, err := a.CreateTopic(context.Background(), int32(p.Partitions), 1, nil, p.Topic)
	check(err)
	emit(map[string]bool{"created": true})
}

// trickle tells how much it wrote, and how late the latest acknowledgement came: a producer that
// stands still would look as if nobody consumed.
func trickle(p parameters) {
	c := client(p, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(p.Topic),
		kgo.ProducerLinger(2*time.Millisecond))
	ended := make(chan struct{})
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
		}
		close(ended)
	}()
	var state sync.Mutex
	written, latest := 0, time.Duration(0)
	round := func() {
		var waiting sync.WaitGroup
		for partition := range p.Partitions {
			now := time.Now()
			waiting.Add(1)
			record := &kgo.Record{Partition: int32(partition), Value: []byte("trickle"), Timestamp: now}
			c.Produce(context.Background(), record, func(_ *kgo.Record, err error) {
				check(err)
				state.Lock()
				written, latest = written+1, max(latest, time.Since(now))
				state.Unlock()
				waiting.Done()
			})
		}
		waiting.Wait()
	}
	round()
	emit(map[string]bool{"writing": true})
	ticks := time.NewTicker(milliseconds(p.Interval))
	for {
		select {
		case <-ended:
			emit(map[string]any{"written": written, "latest_ms": latest.Milliseconds()})
			c.Close()
			return
		case <-ticks.C:
			round()
		}
	}
}

func members(p parameters) {
	g := newGroup(p)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		place := 0
		if len(words) > 1 {
			number, err := strconv.Atoi(words[1])
			check(err)
			place = number
		}
		answer := map[string]any{"done": words[0]}
		switch words[0] {
		case "start":
			for place := range p.Members {
				g.join(place)
			}
		case "begin":
			g.watch.begin(time.Now())
			answer["epochs"] = g.epochs()
		case "since":
			// Nanoseconds of the wall clock: what was stopped before is not the group's doing.
			g.watch.clip(time.Unix(0, int64(place)))
		case "leave":
			g.leave(place)
		case "join":
			g.join(place)
		case "restart":
			g.leave(place)
			g.join(place)
		case "settle":
			answer["settled"] = g.settle()
		case "end":
			answer["epochs"] = g.epochs()
			answer["watch"] = g.watch.end()
		default:
			check(fmt.Errorf("no command: %s", words[0]))
		}
		emit(answer)
	}
	g.close()
}

func main() {
	var p parameters
	check(json.Unmarshal([]byte(os.Args[2]), &p))
	verbs := map[string]func(parameters){"create": create, "trickle": trickle, "members": members}
	verbs[os.Args[1]](p)
}
