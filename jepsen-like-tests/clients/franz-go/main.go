// franz-go behind the adapter protocol of ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type parameters struct {
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Topics     []string `json:"topics"`
	Codec      string   `json:"codec"`
	Acks       string   `json:"acks"`
	Idempotent bool     `json:"idempotent"`
	MaxBytes   int32    `json:"max_bytes"`
	Times      []int64  `json:"times"`
	Group      string   `json:"group"`
	Members    int      `json:"members"`
	Count      int      `json:"count"`
	Out        string   `json:"out"`
	ID         string   `json:"id"`
}

type line map[string]any

var output sync.Mutex

func emit(l line) {
	output.Lock()
	defer output.Unlock()
	text, _ := json.Marshal(l)
	fmt.Println(string(text))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func bytes(text *string) []byte {
	if text == nil {
		return nil
	}
	decoded, err := base64.StdEncoding.DecodeString(*text)
	check(err)
	if decoded == nil {
		decoded = []byte{}
	}
	return decoded
}

func text(value []byte) any {
	if value == nil {
		return nil
	}
	return base64.StdEncoding.EncodeToString(value)
}

func client(p parameters, options ...kgo.Opt) *kgo.Client {
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(p.Bootstrap)}, options...)...)
	check(err)
	return c
}

func produce(ctx context.Context, p parameters) {
	codec := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(),
		"snappy": kgo.SnappyCompression(), "lz4": kgo.Lz4Compression(),
		"zstd": kgo.ZstdCompression(),
	}[p.Codec]
	acks := map[string]kgo.Acks{
		"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks(),
	}[p.Acks]
	options := []kgo.Opt{
		kgo.ProducerBatchCompression(codec), kgo.RequiredAcks(acks),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50 * time.Millisecond),
	}
	if !p.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if p.MaxBytes > 0 {
		options = append(options, kgo.ProducerBatchMaxBytes(p.MaxBytes))
	}
	c := client(p, options...)
	// Not RecordDeliveryTimeout: it counts from the record's own timestamp.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var waiting sync.WaitGroup
	var results []*line
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 32<<20)
	for in.Scan() {
		var r struct {
			P int32        `json:"p"`
			K *string      `json:"k"`
			V *string      `json:"v"`
			H [][2]*string `json:"h"`
			T int64        `json:"t"`
		}
		check(json.Unmarshal(in.Bytes(), &r))
		record := &kgo.Record{
			Topic: p.Topic, Partition: r.P, Key: bytes(r.K), Value: bytes(r.V),
			Timestamp: time.UnixMilli(r.T),
		}
		for _, h := range r.H {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: *h[0], Value: bytes(h[1])})
		}
		result := new(line)
		results = append(results, result)
		waiting.Add(1)
		c.Produce(ctx, record, func(r *kgo.Record, err error) {
			defer waiting.Done()
			if err != nil {
				*result = line{"error": err.Error()}
			} else {
				*result = line{"p": r.Partition, "o": r.Offset}
			}
		})
	}
	waiting.Wait()
	for _, result := range results {
		emit(*result)
	}
	c.Close()
}

func consume(ctx context.Context, p parameters) {
	a := kadm.NewClient(client(p))
	starts, err := a.ListStartOffsets(ctx, p.Topics...)
	check(err)
	ends, err := a.ListEndOffsets(ctx, p.Topics...)
	check(err)
	left := map[string]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if start, _ := starts.Lookup(o.Topic, o.Partition); start.Offset < o.Offset {
			left[fmt.Sprint(o.Topic, "/", o.Partition)] = o.Offset
		}
	})
	c := client(p, kgo.ConsumeTopics(p.Topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxPartitionBytes(4_000_000))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for len(left) > 0 {
		fetches := c.PollFetches(ctx)
		for _, e := range fetches.Errors() {
			check(fmt.Errorf("%w; still expecting %v", e.Err, left))
		}
		fetches.EachRecord(func(r *kgo.Record) {
			headers := [][2]any{}
			for _, h := range r.Headers {
				headers = append(headers, [2]any{h.Key, text(h.Value)})
			}
			emit(line{
				"topic": r.Topic, "p": r.Partition, "o": r.Offset, "k": text(r.Key),
				"v": text(r.Value), "h": headers, "t": r.Timestamp.UnixMilli(),
			})
			name := fmt.Sprint(r.Topic, "/", r.Partition)
			if end, ok := left[name]; ok && r.Offset+1 >= end {
				delete(left, name)
			}
		})
	}
	c.Close()
}

func lookup(ctx context.Context, p parameters) {
	a := kadm.NewClient(client(p))
	for _, t := range p.Times {
		found, err := a.ListOffsetsAfterMilli(ctx, t, p.Topic)
		check(err)
		ends, err := a.ListEndOffsets(ctx, p.Topic)
		check(err)
		one, _ := found.Lookup(p.Topic, 0)
		end, _ := ends.Lookup(p.Topic, 0)
		// kadm turns "no such record" into the end of the log.
		if one.Offset == end.Offset {
			one.Offset = -1
		}
		emit(line{"t": t, "o": one.Offset})
	}
}

func group(ctx context.Context, p parameters) {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	var state sync.Mutex
	owned := make([]int, p.Members)
	seen, ready := 0, false
	var members []*kgo.Client
	for i := 0; i < p.Members; i++ {
		update := func(sign int) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, _ *kgo.Client, m map[string][]int32) {
				state.Lock()
				defer state.Unlock()
				owned[i] += sign * len(m[p.Topic])
				for _, count := range owned {
					if count == 0 {
						return
					}
				}
				if !ready {
					ready = true
					emit(line{"ready": true})
				}
			}
		}
		members = append(members, client(p, kgo.ConsumerGroup(p.Group), kgo.ConsumeTopics(p.Topic),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
			kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(500*time.Millisecond),
			kgo.OnPartitionsAssigned(update(1)), kgo.OnPartitionsRevoked(update(-1)),
			kgo.OnPartitionsLost(update(-1))))
	}
	var polling sync.WaitGroup
	for i, m := range members {
		polling.Add(1)
		go func() {
			defer polling.Done()
			for {
				fetches := m.PollFetches(ctx)
				if ctx.Err() != nil {
					return
				}
				fetches.EachRecord(func(r *kgo.Record) {
					emit(line{"member": i, "p": r.Partition, "o": r.Offset})
				})
				state.Lock()
				seen += fetches.NumRecords()
				full := seen >= p.Count
				state.Unlock()
				if full {
					time.AfterFunc(500*time.Millisecond, cancel)
				}
			}
		}()
	}
	polling.Wait()
	for _, m := range members {
		check(m.CommitUncommittedOffsets(context.Background()))
	}
	for _, m := range members {
		m.Close()
	}
}

func admin(ctx context.Context, p parameters) {
	c := client(p, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(20*time.Millisecond))
	a := kadm.NewClient(c)
	partitions := func() int {
		time.Sleep(500 * time.Millisecond)
		topics, err := a.ListTopics(ctx, p.Topic)
		check(err)
		return len(topics[p.Topic].Partitions)
	}
	config := func() string {
		time.Sleep(200 * time.Millisecond)
		found, err := a.DescribeTopicConfigs(ctx, p.Topic)
		check(err)
		for _, entry := range found[0].Configs {
			if entry.Key == "retention.ms" {
				return entry.MaybeValue()
			}
		}
		return ""
	}
	alter := func(value string) error {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: "retention.ms", Value: &value}
		answers, err := a.AlterTopicConfigs(ctx, []kadm.AlterConfig{change}, p.Topic)
		if err == nil {
			err = answers[0].Err
		}
		return err
	}
	listed := func() bool {
		topics, err := a.ListTopics(ctx)
		check(err)
		return topics.Has(p.Topic)
	}
	day := "86400000"
	steps := []struct {
		op  string
		run func() (bool, error)
	}{
		{"create", func() (bool, error) {
			_, err := a.CreateTopic(ctx, 3, 1, map[string]*string{"retention.ms": &day}, p.Topic)
			return true, err
		}},
		{"create again", func() (bool, error) {
			_, err := a.CreateTopic(ctx, 3, 1, nil, p.Topic)
			return errors.Is(err, kerr.TopicAlreadyExists), nil
		}},
		{"list", func() (bool, error) { return listed(), nil }},
		{"describe", func() (bool, error) { return partitions() == 3, nil }},
		{"cluster", func() (bool, error) {
			brokers, err := a.ListBrokers(ctx)
			return len(brokers) == 1, err
		}},
		{"config", func() (bool, error) { return config() == day, nil }},
		{"alter config", func() (bool, error) {
			err := alter("3600000")
			return config() == "3600000", err
		}},
		{"bad config", func() (bool, error) {
			return errors.Is(alter("soon"), kerr.InvalidConfig), nil
		}},
		{"add partitions", func() (bool, error) {
			answers, err := a.UpdatePartitions(ctx, 5, p.Topic)
			if err == nil {
				err = answers.Error()
			}
			return partitions() == 5, err
		}},
		{"delete records", func() (bool, error) {
			for i := 0; i < 5; i++ {
				record := &kgo.Record{Topic: p.Topic, Partition: 0, Value: []byte("x")}
				if err := c.ProduceSync(ctx, record).FirstErr(); err != nil {
					return false, err
				}
			}
			offsets := kadm.Offsets{}
			offsets.AddOffset(p.Topic, 0, 3, -1)
			if _, err := a.DeleteRecords(ctx, offsets); err != nil {
				return false, err
			}
			starts, err := a.ListStartOffsets(ctx, p.Topic)
			if err != nil {
				return false, err
			}
			ends, err := a.ListEndOffsets(ctx, p.Topic)
			first, _ := starts.Lookup(p.Topic, 0)
			last, _ := ends.Lookup(p.Topic, 0)
			return first.Offset == 3 && last.Offset == 5, err
		}},
		{"log directories", func() (bool, error) {
			all, err := a.DescribeAllLogDirs(ctx, nil)
			found := false
			all.Each(func(d kadm.DescribedLogDir) {
				if _, ok := d.Topics.Lookup(p.Topic, 0); ok {
					found = true
				}
			})
			return found, err
		}},
		{"delete", func() (bool, error) {
			answers, err := a.DeleteTopics(ctx, p.Topic)
			if err == nil {
				err = answers.Error()
			}
			return true, err
		}},
		{"gone", func() (bool, error) {
			for i := 0; i < 20; i++ {
				if !listed() {
					return true, nil
				}
				time.Sleep(100 * time.Millisecond)
			}
			return false, nil
		}},
	}
	for _, step := range steps {
		ok, err := step.run()
		l := line{"op": step.op, "ok": ok && err == nil}
		if err != nil {
			l["why"] = err.Error()
		}
		emit(l)
	}
	c.Close()
}

func transact(ctx context.Context, p parameters) {
	producer := func() *kgo.Client {
		return client(p, kgo.TransactionalID(p.ID), kgo.DefaultProduceTopic(p.Topic))
	}
	first := producer()
	for number := 0; number < 6; number++ {
		check(first.BeginTransaction())
		for i := 0; i < 10; i++ {
			value := []byte(fmt.Sprintf("%d-%d", number, i))
			check(first.ProduceSync(ctx, &kgo.Record{Value: value}).FirstErr())
		}
		check(first.EndTransaction(ctx, kgo.TransactionEndTry(number%3 != 2)))
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(p.Bootstrap), kgo.TransactionalID(p.ID+"-copy"),
		kgo.ConsumerGroup(p.Group), kgo.ConsumeTopics(p.Topic), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	copied, quiet := 0, time.Now().Add(60*time.Second)
	for time.Now().Before(quiet) {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		fetched := session.PollFetches(short)
		cancel()
		if fetched.NumRecords() == 0 {
			continue
		}
		check(session.Begin())
		var values [][]byte
		fetched.EachRecord(func(r *kgo.Record) {
			values = append(values, r.Value)
			session.Produce(ctx, &kgo.Record{Topic: p.Out, Value: r.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		check(err)
		if committed {
			for _, value := range values {
				emit(line{"v": text(value)})
			}
			copied += len(values)
		}
		if copied >= 40 {
			quiet = time.Now().Add(2 * time.Second)
		}
	}
	session.Close()
	second := producer()
	check(second.BeginTransaction())
	check(second.ProduceSync(ctx, &kgo.Record{Value: []byte("aborted")}).FirstErr())
	check(second.EndTransaction(ctx, kgo.TryAbort))
	err = first.BeginTransaction()
	if err == nil {
		err = first.ProduceSync(ctx, &kgo.Record{Value: []byte("zombie")}).FirstErr()
	}
	if err == nil {
		err = first.EndTransaction(ctx, kgo.TryCommit)
	}
	switch {
	case err == nil:
		emit(line{"zombie": "it committed"})
	case errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
		emit(line{"zombie": "fenced"})
	default:
		emit(line{"zombie": err.Error()})
	}
	reader := client(p, kgo.ConsumeTopics(p.Out), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	found, quiet := 0, time.Now().Add(30*time.Second)
	for time.Now().Before(quiet) {
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		reader.PollFetches(short).EachRecord(func(r *kgo.Record) {
			emit(line{"out": text(r.Value)})
			found++
		})
		cancel()
		if soon := time.Now().Add(time.Second); found >= 40 && soon.Before(quiet) {
			quiet = soon
		}
	}
	reader.Close()
}

func main() {
	var p parameters
	check(json.Unmarshal([]byte(os.Args[2]), &p))
	verbs := map[string]func(context.Context, parameters){
		"produce": produce, "consume": consume, "lookup": lookup, "group": group, "admin": admin,
		"transact": transact,
	}
	verbs[os.Args[1]](context.Background(), p)
}
