package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// leadersMove is true if nodes are killed and leaders move during the run.
var leadersMove = os.Getenv("LEADERS_MOVE") != ""

// session has the resources of one scenario: unique names, and clients that are closed after it.
type session struct {
	ctx       context.Context
	cancel    context.CancelFunc
	bootstrap string
	prefix    string
	admin     *kadm.Client

	mutex   sync.Mutex
	clients []*kgo.Client
	topics  []string
}

func newSession(bootstrap, name, runID string) *session {
	ctx, cancel := context.WithTimeout(context.Background(), timeoutMax)
	s := &session{ctx: ctx, cancel: cancel, bootstrap: bootstrap, prefix: "go-" + name + "-" + runID + "-"}
	s.admin = kadm.NewClient(s.client())
	return s
}

func (s *session) close() {
	for _, topic := range s.topics {
		s.admin.DeleteTopic(s.ctx, topic)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, client := range s.clients {
		client.CloseAllowingRebalance()
	}
	s.cancel()
}

func (s *session) unique(suffix string) string { return s.prefix + suffix }

func (s *session) client(options ...kgo.Opt) *kgo.Client {
	// The client waits for a new topic for the minimum age of its metadata, 5 s by default.
	base := []kgo.Opt{kgo.SeedBrokers(s.bootstrap), kgo.MetadataMinAge(200 * time.Millisecond)}
	client := must(kgo.NewClient(append(base, options...)...))
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.clients = append(s.clients, client)
	return client
}

// Topics

type config map[string]string

func (c config) pointers() map[string]*string {
	values := make(map[string]*string)
	for key, value := range c {
		values[key] = &value
	}
	return values
}

func (s *session) topic(partitions int32) string { return s.topicWith("t", partitions, nil) }

func (s *session) topicWith(suffix string, partitions int32, c config) string {
	name := s.unique(suffix)
	s.topics = append(s.topics, name)
	created := must(s.admin.CreateTopic(s.ctx, partitions, -1, c.pointers(), name))
	check(created.Err)
	// Kafka's metadata may show a topic before its leaders serve; a first idempotent batch would then be refused.
	eventually(10*time.Second, name+" is served", func() bool {
		offsets, err := s.admin.ListEndOffsets(s.ctx, name)
		return err == nil && offsets.Error() == nil && len(offsets[name]) == int(partitions)
	})
	return name
}

func (s *session) listed(topic string) bool {
	return must(s.admin.ListTopics(s.ctx)).Has(topic)
}

func (s *session) earliest(topic string) int64 {
	return offset(must(s.admin.ListStartOffsets(s.ctx, topic)), topic)
}

func (s *session) latest(topic string) int64 {
	return offset(must(s.admin.ListEndOffsets(s.ctx, topic)), topic)
}

// lag is a group's total lag. The client looks up the coordinator only once (franz-go 1.22): it fails if that node was
// killed meanwhile.
func (s *session) lag(group string) kadm.DescribedGroupLag {
	var lags kadm.DescribedGroupLags
	eventually(20*time.Second, "the lag of "+group, func() bool {
		found, err := s.admin.Lag(s.ctx, group)
		if !errors.Is(err, io.EOF) || !leadersMove {
			check(err)
		}
		lags = found
		return err == nil
	})
	return lags[group]
}

// offset is the listed offset of partition 0.
func offset(listed kadm.ListedOffsets, topic string) int64 {
	found, ok := listed.Lookup(topic, 0)
	holds(ok, "the partition's offset is listed")
	check(found.Err)
	return found.Offset
}

// Producing

func record(topic string, partition int32, key, value string) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Key: []byte(key), Value: []byte(value)}
}

// numbers are the decimal numbers from 0 up to count.
func numbers(count int) []string {
	values := make([]string, count)
	for n := range values {
		values[n] = strconv.Itoa(n)
	}
	return values
}

// produce sends the values in order to partition 0 and returns the offsets that were acknowledged.
func (s *session) produce(topic string, values ...string) []int64 {
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, &kgo.Record{Topic: topic, Value: []byte(value)})
	}
	return s.produceRecords(records)
}

func (s *session) produceRecords(records []*kgo.Record, options ...kgo.Opt) []int64 {
	offsets, err := s.tryProduce(records, options...)
	check(err)
	return offsets
}

func (s *session) tryProduce(records []*kgo.Record, options ...kgo.Opt) ([]int64, error) {
	client := s.client(append([]kgo.Opt{kgo.RecordPartitioner(kgo.ManualPartitioner())}, options...)...)
	results := client.ProduceSync(s.ctx, records...)
	client.Close()
	// The results are in the order of acknowledgement; the records know their offsets too.
	var offsets []int64
	for _, r := range records {
		offsets = append(offsets, r.Offset)
	}
	return offsets, results.FirstErr()
}

// Consuming

// reader consumes a partition without a group.
func (s *session) reader(topic string, partition int32, at kgo.Offset, options ...kgo.Opt) *kgo.Client {
	assigned := map[string]map[int32]kgo.Offset{topic: {partition: at}}
	return s.client(append([]kgo.Opt{kgo.ConsumePartitions(assigned)}, options...)...)
}

// take polls until it has at least count records.
func (s *session) take(client *kgo.Client, count int) []*kgo.Record {
	ctx, cancel := context.WithTimeout(s.ctx, 20*time.Second)
	defer cancel()
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			fail("%d of %d records within 20 s", len(records), count)
		}
		check(fetches.Err())
		records = append(records, fetches.Records()...)
	}
	return records
}

// read returns the first count records of a partition.
func (s *session) read(topic string, partition int32, count int) []*kgo.Record {
	client := s.reader(topic, partition, kgo.NewOffset().AtStart())
	defer client.Close()
	return s.take(client, count)
}

func values(records []*kgo.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, string(r.Value))
	}
	return all
}

// refused checks that an error is the protocol's.
func refused(err error, wanted *kerr.Error, what string) {
	if !errors.Is(err, wanted) {
		fail("%s: wanted %v, got %v", what, wanted, err)
	}
}
