// One client of `run.sh exactly-once` that writes, by franz-go, which speaks the present protocol
// (KIP-890 part 2): client.py says what all clients write down, and how.
//
//	writer produce|copy BOOTSTRAP FILE NUMBER ID
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	input, output, group = "x0", "x1", "xg"
	partitions           = 4
	// A transaction may last so long; who stands still for longer is shut out.
	timeout = 8 * time.Second
	// For one call, with all its attempts.
	patience   = 60 * time.Second
	recordsMax = 15
	// Of a copier, at once.
	readMax = 50
)

var leaving atomic.Bool

// A log of events, each written at once: what was written before a SIGKILL is there.
type log struct {
	file *os.File
}

// The monotonic clock of the machine, which all its processes share.
func monotonic() int64 {
	var now syscall.Timespec
	const clockMonotonic = 1
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic,
		uintptr(unsafe.Pointer(&now)), 0); errno != 0 {
		panic(errno)
	}
	return now.Nano()
}

func (l log) told(event ...any) {
	line, err := json.Marshal(append([]any{monotonic()}, event...))
	if err != nil {
		panic(err)
	}
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		panic(err)
	}
}

// The next life begins with InitProducerId, in another process.
func (l log) ends(why string, err error) {
	l.told("leaves", fmt.Sprintf("%s: %v", why, err))
	os.Exit(0)
}

// Waits for no call for ever.
func within() context.Context {
	soon, cancel := context.WithTimeout(context.Background(), patience)
	_ = cancel // the process ends soon after it
	return soon
}

// Some transactions last, and some longer than they may.
func linger() {
	switch drawn := rand.Float64(); {
	case drawn < 0.03:
		time.Sleep(time.Duration(rand.Float64() * 3 * float64(time.Second)))
	case drawn < 0.035:
		time.Sleep(timeout + time.Duration(rand.Float64()*2*float64(time.Second)))
	}
}

// One life of a transactional id.
type life struct {
	log
	client *kgo.Client
	number uint64
	values uint64
}

// A record that is sent: [topic, partition, value, the value that it is a copy of].
type sent [4]any

func (l *life) value() uint64 {
	l.values++
	return l.number<<32 | l.values
}

// InitProducerId, told before and after.
func (l *life) begin(id string) {
	l.told("init", id)
	if _, _, err := l.client.ProducerID(within()); err != nil {
		l.ends("cannot begin", err)
	}
	l.told("begun")
}

// Sends, and waits until all is stored; says where, and whether all is.
func (l *life) send(records []sent) error {
	l.told("send", records)
	var failed atomic.Pointer[error]
	places := make([][4]any, len(records))
	for number, it := range records {
		topic, partition, value := it[0].(string), it[1].(int32), it[2].(uint64)
		record := &kgo.Record{Topic: topic, Partition: partition,
			Value: []byte(strconv.FormatUint(value, 10))}
		l.client.Produce(within(), record, func(record *kgo.Record, err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
				return
			}
			places[number] = [4]any{topic, partition, value, record.Offset}
		})
	}
	if err := l.client.Flush(within()); err != nil {
		l.ends("cannot send", err)
	}
	stored := [][4]any{}
	for _, place := range places {
		if place[0] != nil {
			stored = append(stored, place)
		}
	}
	l.told("stored", stored)
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func (l *life) produce() {
	for !leaving.Load() {
		time.Sleep(time.Duration(rand.Int63n(int64(400 * time.Millisecond))))
		var records []sent
		for range 1 + rand.Intn(recordsMax) {
			records = append(records, sent{input, rand.Int31n(partitions), l.value(), nil})
		}
		l.told("begin")
		if err := l.client.BeginTransaction(); err != nil {
			l.ends("cannot begin a transaction", err)
		}
		err := l.send(records)
		linger()
		switch drawn := rand.Float64(); {
		case drawn < 0.01:
			l.ends("it leaves a transaction open", nil)
		case err != nil || drawn < 0.12:
			l.abort()
		default:
			l.commit()
		}
	}
	l.told("leaves", "it was asked to")
}

func (l *life) abort() {
	if err := l.client.AbortBufferedRecords(within()); err != nil {
		l.ends("cannot abort", err)
	}
	if err := l.client.EndTransaction(within(), kgo.TryAbort); err != nil {
		l.ends("cannot abort", err)
	}
	l.told("end", "aborted")
}

func (l *life) commit() {
	l.told("ask")
	err := l.client.EndTransaction(within(), kgo.TryCommit)
	switch {
	case err == nil:
		l.told("end", "committed")
	case errors.Is(err, kerr.OperationNotAttempted) || errors.Is(err, kerr.TransactionAbortable):
		l.abort()
	default:
		l.ends("does not know whether it has committed", err)
	}
}

func (l *life) copy(session *kgo.GroupTransactSession) {
	for !leaving.Load() {
		soon, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		fetches := session.PollRecords(soon, readMax)
		cancel()
		for _, it := range fetches.Errors() {
			if !errors.Is(it.Err, context.DeadlineExceeded) {
				l.told("leaves", fmt.Sprintf("%s-%d: %v", it.Topic, it.Partition, it.Err))
			}
		}
		if fetches.NumRecords() == 0 {
			continue
		}
		records := l.seen(fetches)
		l.told("begin")
		if err := session.Begin(); err != nil {
			l.ends("cannot begin a transaction", err)
		}
		err := l.send(records)
		linger()
		drawn := rand.Float64()
		if drawn < 0.01 {
			l.ends("it leaves a transaction open", nil)
		}
		// The session puts the offsets in, unless the group has gone on without this member.
		end := kgo.TransactionEndTry(err == nil && drawn > 0.1)
		if end {
			l.told("ask")
		}
		committed, err := session.End(within(), end)
		switch {
		case err != nil:
			l.ends("does not know whether it has committed", err)
		case committed:
			l.told("end", "committed")
		default:
			l.told("end", "aborted")
		}
	}
	session.Close()
	l.told("leaves", "it was asked to")
}

// Tells what was read; the copies of it.
func (l *life) seen(fetches kgo.Fetches) []sent {
	var records []sent
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		out := rand.Int31n(partitions)
		var seen [][2]uint64
		for _, record := range p.Records {
			value, err := strconv.ParseUint(string(record.Value), 10, 64)
			if err != nil {
				panic(err)
			}
			seen = append(seen, [2]uint64{uint64(record.Offset), value})
			records = append(records, sent{output, out, l.value(), value})
		}
		last := p.Records[len(p.Records)-1]
		l.told("view", input, p.Partition, p.Records[0].Offset, last.Offset+1, seen)
	})
	return records
}

func main() {
	verb, bootstrap, name := os.Args[1], os.Args[2], os.Args[3]
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	number, err := strconv.ParseUint(os.Args[4], 10, 31)
	if err != nil {
		panic(err)
	}
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	go func() {
		<-asked
		leaving.Store(true)
	}()
	l := &life{log: log{file}, number: number}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.TransactionalID(os.Args[5]),
		kgo.TransactionTimeout(timeout),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.DialTimeout(3 * time.Second),
		kgo.RequestTimeoutOverhead(5 * time.Second),
		kgo.MetadataMinAge(250 * time.Millisecond),
	}
	if verb == "produce" {
		if l.client, err = kgo.NewClient(options...); err != nil {
			panic(err)
		}
		l.begin(os.Args[5])
		l.produce()
		return
	}
	session, err := kgo.NewGroupTransactSession(append(options,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(input),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(time.Second),
		kgo.FetchMaxWait(200*time.Millisecond))...)
	if err != nil {
		panic(err)
	}
	l.client = session.Client()
	l.begin(os.Args[5])
	l.copy(session)
}
