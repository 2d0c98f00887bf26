package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Produced records are read back exactly, at every level of acknowledgement and with every compression.
func registerProducing(s *suite) {
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		s.add("compression-"+name, func(s *session) { roundTrip(s, codec) })
	}
	s.add("acks-0", acksNone)
	s.add("acks-1", func(s *session) { acknowledged(s, kgo.LeaderAck()) })
	s.add("acks-all", func(s *session) { acknowledged(s, kgo.AllISRAcks()) })
	s.add("idempotent-producer", idempotentProducer)
	s.addSlow("idempotent-retries", idempotentRetries)
	s.add("large-record", largeRecord)
	s.add("record-over-the-limit", recordOverTheLimit)
	s.add("log-append-time", logAppendTime)
	s.add("partitions-keep-order", partitionsKeepOrder)
	s.add("transactions", transactions)
	s.add("transactions-fence-the-former-producer", fencedProducer)
}

// transactions over all partitions are read as a whole, or not at all if they were aborted.
func transactions(s *session) {
	topic := s.topic(3)
	client := s.client(kgo.TransactionalID(s.unique("id")), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for round := range 4 {
		produceInTransaction(s, client, topic, strconv.Itoa(round))
		check(client.EndTransaction(s.ctx, kgo.TransactionEndTry(round%2 == 0)))
	}
	for partition := range int32(3) {
		reader := s.reader(topic, partition, kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		expect(values(s.take(reader, 2)), []string{"0", "2"}, "committed records")
		expect(len(s.read(topic, partition, 4)), 4, "all records")
	}
}

func produceInTransaction(s *session, client *kgo.Client, topic, value string) {
	check(client.BeginTransaction())
	for partition := range int32(3) {
		record := &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}
		check(client.ProduceSync(s.ctx, record).FirstErr())
	}
}

func fencedProducer(s *session) {
	topic, id := s.topic(3), kgo.TransactionalID(s.unique("id"))
	former := s.client(id, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produceInTransaction(s, former, topic, "lost")
	next := s.client(id, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produceInTransaction(s, next, topic, "kept")
	check(next.EndTransaction(s.ctx, kgo.TryCommit))
	holds(former.EndTransaction(s.ctx, kgo.TryCommit) != nil, "the former producer is fenced")
	for partition := range int32(3) {
		reader := s.reader(topic, partition, kgo.NewOffset().AtStart(), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		expect(values(s.take(reader, 1)), []string{"kept"}, "committed records")
	}
}

// samples have absent and empty keys, values and headers, which are different things.
func samples(topic string) []*kgo.Record {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var records []*kgo.Record
	for range 20 {
		records = append(records,
			&kgo.Record{Key: []byte("key"), Value: []byte("value"), Headers: []kgo.RecordHeader{
				{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "empty", Value: []byte{}}, {Key: "null"}}},
			&kgo.Record{Value: []byte("no key")},
			&kgo.Record{Key: []byte("tombstone")},
			&kgo.Record{Key: []byte{}, Value: []byte{}},
			&kgo.Record{},
			&kgo.Record{Key: []byte("ключ"), Value: all, Headers: []kgo.RecordHeader{{Key: "заголовок", Value: all}}},
			&kgo.Record{Key: []byte("long"), Value: bytes.Repeat([]byte("0123456789abcdef"), 4096)})
	}
	for n, r := range records {
		r.Topic, r.Timestamp = topic, start.Add(time.Duration(n)*time.Millisecond)
	}
	return records
}

func roundTrip(s *session, codec kgo.CompressionCodec) {
	topic := s.topic(1)
	sent := samples(topic)
	offsets := s.produceRecords(sent, kgo.ProducerBatchCompression(codec), kgo.ProducerLinger(50*time.Millisecond))
	for n, r := range s.read(topic, 0, len(sent)) {
		expect(offsets[n], int64(n), "acknowledged offset")
		expect(r.Offset, int64(n), "offset")
		expect(r.Key, sent[n].Key, fmt.Sprint("key ", n))
		expect(r.Value, sent[n].Value, fmt.Sprint("value ", n))
		expect(r.Headers, sent[n].Headers, fmt.Sprint("headers ", n))
		expect(r.Timestamp.UnixMilli(), sent[n].Timestamp.UnixMilli(), fmt.Sprint("timestamp ", n))
		expect(r.Attrs.TimestampType(), int8(0), "kind of timestamp")
	}
}

func valueRecords(topic string, values []string) []*kgo.Record {
	var records []*kgo.Record
	for _, value := range values {
		records = append(records, record(topic, 0, "", value))
	}
	return records
}

func acksNone(s *session) {
	topic := s.topic(1)
	s.produceRecords(valueRecords(topic, numbers(100)), kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	eventually(10*time.Second, "all are stored", func() bool { return s.latest(topic) == 100 })
	expect(values(s.read(topic, 0, 100)), numbers(100), "records")
}

func acknowledged(s *session, acks kgo.Acks) {
	topic := s.topic(1)
	offsets := s.produceRecords(valueRecords(topic, numbers(100)), kgo.RequiredAcks(acks), kgo.DisableIdempotentWrite())
	for n, offset := range offsets {
		expect(offset, int64(n), "offset")
	}
	expect(values(s.read(topic, 0, 100)), numbers(100), "records")
}

// manyBatches produces numbers one batch each, five requests in flight, and checks that each is stored once, in order.
func manyBatches(s *session, count int, options ...kgo.Opt) {
	topic := s.topic(2)
	var records []*kgo.Record
	for n := range count {
		records = append(records, record(topic, int32(n%2), "", strconv.Itoa(n)+strings.Repeat(" ", 100)))
	}
	offsets := s.produceRecords(records, append(options, kgo.ProducerBatchMaxBytes(512), kgo.ProducerLinger(0))...)
	for n, offset := range offsets {
		expect(offset, int64(n/2), "offset of "+strconv.Itoa(n))
	}
	for partition := range 2 {
		for n, r := range s.read(topic, int32(partition), count/2) {
			expect(strings.TrimSpace(string(r.Value)), strconv.Itoa(2*n+partition), "record")
		}
	}
	expect(s.latest(topic), int64(count/2), "end offset")
}

func idempotentProducer(s *session) { manyBatches(s, 4000) }

func idempotentRetries(s *session) {
	network := &flakyNetwork{every: 10}
	manyBatches(s, 1000, kgo.Dialer(network.dial), kgo.RetryBackoffFn(func(int) time.Duration { return 10 * time.Millisecond }))
	holds(network.dropped.Load() >= 5, "answers were lost")
}

// The limit is 1,048,588 bytes by default: a value of 1,000,000 bytes is within it.
func largeRecord(s *session) {
	topic := s.topic(1)
	value := bytes.Repeat([]byte{7}, 1_000_000)
	s.produceRecords([]*kgo.Record{{Topic: topic, Value: value}}, kgo.ProducerBatchMaxBytes(2_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	holds(bytes.Equal(s.read(topic, 0, 1)[0].Value, value), "the value is the same")
}

func recordOverTheLimit(s *session) {
	plain := []kgo.Opt{kgo.ProducerBatchMaxBytes(4_000_000), kgo.ProducerBatchCompression(kgo.NoCompression())}
	small := s.topicWith("small", 1, config{"max.message.bytes": "10000"})
	standard := s.topicWith("standard", 1, nil)
	s.produceRecords(valueRecords(small, []string{strings.Repeat("x", 9_000)}), plain...)
	for topic, size := range map[string]int{small: 10_001, standard: 1_100_000} {
		_, err := s.tryProduce(valueRecords(topic, []string{strings.Repeat("x", size)}), plain...)
		refused(err, kerr.MessageTooLarge, fmt.Sprint(size, " bytes"))
	}
	expect([]int64{s.latest(small), s.latest(standard)}, []int64{1, 0}, "end offsets")
	raised := s.topicWith("raised", 1, config{"max.message.bytes": "3000000"})
	s.produceRecords(valueRecords(raised, []string{strings.Repeat("x", 2_500_000)}), plain...)
	expect(len(s.read(raised, 0, 1)[0].Value), 2_500_000, "a raised limit")
}

func logAppendTime(s *session) {
	topic := s.topicWith("t", 1, config{"message.timestamp.type": "LogAppendTime"})
	before := time.Now()
	sent := record(topic, 0, "", "x")
	sent.Timestamp = before.Add(-time.Hour)
	s.produceRecords([]*kgo.Record{sent})
	read := s.read(topic, 0, 1)[0]
	expect(read.Attrs.TimestampType(), int8(1), "kind of timestamp")
	holds(read.Timestamp.Sub(before).Abs() < 10*time.Second, "the broker's own time")
}

// Ten partitions, 20,000 records, one consumer of all partitions.
func partitionsKeepOrder(s *session) {
	topic := s.topic(10)
	var records []*kgo.Record
	for n := range 20_000 {
		records = append(records, record(topic, int32(n%10), "", strconv.Itoa(n)))
	}
	s.produceRecords(records)
	client := s.client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := make([][]string, 10)
	for _, r := range s.take(client, 20_000) {
		expect(r.Offset, int64(len(seen[r.Partition])), "offset")
		seen[r.Partition] = append(seen[r.Partition], string(r.Value))
	}
	for partition := range seen {
		var wanted []string
		for n := partition; n < 20_000; n += 10 {
			wanted = append(wanted, strconv.Itoa(n))
		}
		holds(slices.Equal(seen[partition], wanted), fmt.Sprint("the records of partition ", partition, " are in order"))
	}
}
