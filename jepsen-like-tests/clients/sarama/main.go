// sarama behind the adapter protocol of ../README.md.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

type parameters struct {
	Bootstrap  string   `json:"bootstrap"`
	Topic      string   `json:"topic"`
	Topics     []string `json:"topics"`
	Codec      string   `json:"codec"`
	Acks       string   `json:"acks"`
	Idempotent bool     `json:"idempotent"`
	MaxBytes   int      `json:"max_bytes"`
	Times      []int64  `json:"times"`
	Group      string   `json:"group"`
	Members    int      `json:"members"`
	Count      int      `json:"count"`
	Out        string   `json:"out"`
	ID         string   `json:"id"`
}

func (p parameters) brokers() []string { return strings.Split(p.Bootstrap, ",") }

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

// An encoder of nothing is null, one of no bytes is empty.
func encoder(value []byte) sarama.Encoder {
	if value == nil {
		return nil
	}
	return sarama.ByteEncoder(value)
}

func settings() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.AllowAutoTopicCreation = false
	config.Producer.Return.Successes = true
	config.Producer.Return.Errors = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Fetch.Default = 4_000_000
	// A reader is closed only when its last question is answered.
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 10 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	return config
}

func produce(p parameters) {
	config := settings()
	config.Producer.Compression = map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP,
		"snappy": sarama.CompressionSnappy, "lz4": sarama.CompressionLZ4,
		"zstd": sarama.CompressionZSTD,
	}[p.Codec]
	config.Producer.RequiredAcks = map[string]sarama.RequiredAcks{
		"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll,
	}[p.Acks]
	config.Producer.Flush.Frequency = 50 * time.Millisecond
	if p.Idempotent {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	if p.MaxBytes > 0 {
		config.Producer.MaxMessageBytes = p.MaxBytes
	}
	producer, err := sarama.NewAsyncProducer(p.brokers(), config)
	check(err)
	var messages []*sarama.ProducerMessage
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
		message := &sarama.ProducerMessage{
			Topic: p.Topic, Partition: r.P, Key: encoder(bytes(r.K)), Value: encoder(bytes(r.V)),
			Timestamp: time.UnixMilli(r.T), Metadata: len(messages),
		}
		for _, h := range r.H {
			header := sarama.RecordHeader{Key: []byte(*h[0]), Value: bytes(h[1])}
			message.Headers = append(message.Headers, header)
		}
		messages = append(messages, message)
	}
	results := make([]line, len(messages))
	go func() {
		for _, message := range messages {
			producer.Input() <- message
		}
	}()
	for range messages {
		select {
		case m := <-producer.Successes():
			results[m.Metadata.(int)] = line{"p": m.Partition, "o": m.Offset}
		case e := <-producer.Errors():
			results[e.Msg.Metadata.(int)] = line{"error": e.Err.Error()}
		}
	}
	for _, result := range results {
		emit(result)
	}
	check(producer.Close())
}

// Calls `each` with every record up to the present end.
func readAll(config *sarama.Config, p parameters, topic string, each func(*sarama.ConsumerMessage)) {
	client, err := sarama.NewClient(p.brokers(), config)
	check(err)
	consumer, err := sarama.NewConsumerFromClient(client)
	check(err)
	partitions, err := client.Partitions(topic)
	check(err)
	for _, partition := range partitions {
		start, err := client.GetOffset(topic, partition, sarama.OffsetOldest)
		check(err)
		end, err := client.GetOffset(topic, partition, sarama.OffsetNewest)
		check(err)
		if start == end {
			continue
		}
		reader, err := consumer.ConsumePartition(topic, partition, start)
		check(err)
		// Markers and aborted records have offsets and are not shown.
		for quiet := false; !quiet; {
			select {
			case m := <-reader.Messages():
				each(m)
				quiet = m.Offset+1 >= end
			case e := <-reader.Errors():
				check(e)
			case <-time.After(2 * time.Second):
				quiet = config.Consumer.IsolationLevel == sarama.ReadCommitted
				if !quiet {
					check(fmt.Errorf("nothing more of %s/%d, whose end is %d", topic, partition, end))
				}
			}
		}
		check(reader.Close())
	}
	check(client.Close())
}

func consume(p parameters) {
	for _, topic := range p.Topics {
		readAll(settings(), p, topic, func(m *sarama.ConsumerMessage) {
			headers := [][2]any{}
			for _, h := range m.Headers {
				headers = append(headers, [2]any{string(h.Key), text(h.Value)})
			}
			emit(line{
				"topic": m.Topic, "p": m.Partition, "o": m.Offset, "k": text(m.Key),
				"v": text(m.Value), "h": headers, "t": m.Timestamp.UnixMilli(),
			})
		})
	}
}

func lookup(p parameters) {
	client, err := sarama.NewClient(p.brokers(), settings())
	check(err)
	for _, t := range p.Times {
		found, err := client.GetOffset(p.Topic, 0, t)
		check(err)
		emit(line{"t": t, "o": found})
	}
	check(client.Close())
}

// One member of a group; `full` ends it.
type member struct {
	number int
	state  *groupState
}

type groupState struct {
	sync.Mutex
	topic       string
	owned       []int
	seen, count int
	ready       bool
	full        context.CancelFunc
}

func (m member) Setup(session sarama.ConsumerGroupSession) error {
	m.state.Lock()
	defer m.state.Unlock()
	m.state.owned[m.number] = len(session.Claims()[m.state.topic])
	for _, count := range m.state.owned {
		if count == 0 {
			return nil
		}
	}
	if !m.state.ready {
		m.state.ready = true
		emit(line{"ready": true})
	}
	return nil
}

func (m member) Cleanup(session sarama.ConsumerGroupSession) error {
	session.Commit()
	return nil
}

func (m member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		emit(line{"member": m.number, "p": message.Partition, "o": message.Offset})
		session.MarkMessage(message, "")
		m.state.Lock()
		m.state.seen++
		if m.state.seen >= m.state.count {
			time.AfterFunc(500*time.Millisecond, m.state.full)
		}
		m.state.Unlock()
	}
	return nil
}

func group(p parameters) {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	state := &groupState{topic: p.Topic, owned: make([]int, p.Members), count: p.Count, full: cancel}
	config := settings()
	config.Consumer.Offsets.AutoCommit.Enable = false
	var running sync.WaitGroup
	for number := range p.Members {
		joined, err := sarama.NewConsumerGroup(p.brokers(), p.Group, config)
		check(err)
		running.Add(1)
		go func() {
			defer running.Done()
			for ctx.Err() == nil {
				check(joined.Consume(ctx, []string{p.Topic}, member{number, state}))
			}
			check(joined.Close())
		}()
	}
	running.Wait()
}

func admin(p parameters) {
	config := settings()
	a, err := sarama.NewClusterAdmin(p.brokers(), config)
	check(err)
	day, hour, bad := "86400000", "3600000", "soon"
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1,
		ConfigEntries: map[string]*string{"retention.ms": &day}}
	partitions := func() (int, error) {
		time.Sleep(500 * time.Millisecond)
		topics, err := a.DescribeTopics([]string{p.Topic})
		if err != nil {
			return 0, err
		}
		return len(topics[0].Partitions), nil
	}
	value := func() (string, error) {
		time.Sleep(200 * time.Millisecond)
		entries, err := a.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource,
			Name: p.Topic, ConfigNames: []string{"retention.ms"}})
		if err != nil || len(entries) != 1 {
			return "", err
		}
		return entries[0].Value, nil
	}
	alter := func(to *string) error {
		change := sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: to}
		return a.IncrementalAlterConfig(sarama.TopicResource, p.Topic,
			map[string]sarama.IncrementalAlterConfigsEntry{"retention.ms": change}, false)
	}
	listed := func() bool {
		topics, err := a.ListTopics()
		check(err)
		_, there := topics[p.Topic]
		return there
	}
	is := func(wanted int) (bool, error) {
		count, err := partitions()
		return count == wanted, err
	}
	steps := []struct {
		op  string
		run func() (bool, error)
	}{
		{"create", func() (bool, error) { return true, a.CreateTopic(p.Topic, detail, false) }},
		{"create again", func() (bool, error) {
			return errors.Is(a.CreateTopic(p.Topic, detail, false), sarama.ErrTopicAlreadyExists), nil
		}},
		{"list", func() (bool, error) { return listed(), nil }},
		{"describe", func() (bool, error) { return is(3) }},
		{"cluster", func() (bool, error) {
			brokers, _, err := a.DescribeCluster()
			return len(brokers) == 1, err
		}},
		{"config", func() (bool, error) { found, err := value(); return found == day, err }},
		{"alter config", func() (bool, error) {
			if err := alter(&hour); err != nil {
				return false, err
			}
			found, err := value()
			return found == hour, err
		}},
		{"bad config", func() (bool, error) {
			return errors.Is(alter(&bad), sarama.ErrInvalidConfig), nil
		}},
		{"add partitions", func() (bool, error) {
			if err := a.CreatePartitions(p.Topic, 5, nil, false); err != nil {
				return false, err
			}
			return is(5)
		}},
		{"delete records", func() (bool, error) { return deleteRecords(a, p, config) }},
		{"delete", func() (bool, error) { return true, a.DeleteTopic(p.Topic) }},
		{"gone", func() (bool, error) {
			for range 20 {
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
	check(a.Close())
}

func deleteRecords(a sarama.ClusterAdmin, p parameters, config *sarama.Config) (bool, error) {
	client, err := sarama.NewClient(p.brokers(), config)
	if err != nil {
		return false, err
	}
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return false, err
	}
	for range 5 {
		message := &sarama.ProducerMessage{Topic: p.Topic, Value: sarama.StringEncoder("x")}
		if _, _, err := producer.SendMessage(message); err != nil {
			return false, err
		}
	}
	if err := a.DeleteRecords(p.Topic, map[int32]int64{0: 3}); err != nil {
		return false, err
	}
	first, err := client.GetOffset(p.Topic, 0, sarama.OffsetOldest)
	if err != nil {
		return false, err
	}
	last, err := client.GetOffset(p.Topic, 0, sarama.OffsetNewest)
	return first == 3 && last == 5, errors.Join(err, client.Close())
}

func transactional(p parameters, id string) sarama.SyncProducer {
	config := settings()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = id
	producer, err := sarama.NewSyncProducer(p.brokers(), config)
	check(err)
	return producer
}

func send(producer sarama.SyncProducer, topic string, value []byte) error {
	message := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value)}
	_, _, err := producer.SendMessage(message)
	return err
}

// Copies what it is given, each record in a transaction with its offset.
type copier struct {
	p        parameters
	producer sarama.SyncProducer
	state    *sync.Mutex
	copied   *int
	full     context.CancelFunc
}

func (c copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c copier) ConsumeClaim(_ sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		c.state.Lock()
		check(c.producer.BeginTxn())
		check(send(c.producer, c.p.Out, message.Value))
		check(c.producer.AddMessageToTxn(message, c.p.Group, nil))
		check(c.producer.CommitTxn())
		emit(line{"v": text(message.Value)})
		*c.copied++
		if *c.copied == 40 {
			// A record too many would come now.
			time.AfterFunc(2*time.Second, c.full)
		}
		c.state.Unlock()
	}
	return nil
}

func transact(p parameters) {
	first := transactional(p, p.ID)
	for number := range 6 {
		check(first.BeginTxn())
		for i := range 10 {
			check(send(first, p.Topic, fmt.Appendf(nil, "%d-%d", number, i)))
		}
		if number%3 == 2 {
			check(first.AbortTxn())
		} else {
			check(first.CommitTxn())
		}
	}
	config := settings()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.AutoCommit.Enable = false
	joined, err := sarama.NewConsumerGroup(p.brokers(), p.Group, config)
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	copy := copier{p, transactional(p, p.ID+"-copy"), new(sync.Mutex), new(int), cancel}
	for ctx.Err() == nil {
		check(joined.Consume(ctx, []string{p.Topic}, copy))
	}
	check(joined.Close())
	second := transactional(p, p.ID)
	check(second.BeginTxn())
	check(send(second, p.Topic, []byte("aborted")))
	check(second.AbortTxn())
	err = first.BeginTxn()
	if err == nil {
		err = send(first, p.Topic, []byte("zombie"))
	}
	if err == nil {
		err = first.CommitTxn()
	}
	switch {
	case err == nil:
		emit(line{"zombie": "it committed"})
	case errors.Is(err, sarama.ErrProducerFenced), errors.Is(err, sarama.ErrInvalidProducerEpoch):
		emit(line{"zombie": "fenced"})
	default:
		emit(line{"zombie": err.Error()})
	}
	readAll(config, p, p.Out, func(m *sarama.ConsumerMessage) { emit(line{"out": text(m.Value)}) })
}

func main() {
	var p parameters
	check(json.Unmarshal([]byte(os.Args[2]), &p))
	verbs := map[string]func(parameters){
		"produce": produce, "consume": consume, "lookup": lookup, "group": group, "admin": admin,
		"transact": transact,
	}
	verbs[os.Args[1]](p)
}
