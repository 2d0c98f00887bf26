package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Reading without a group: start, seek, wait and reset of a consumer.
func registerConsuming(s *suite) {
	s.add("seek-to-offsets", seekToOffsets)
	s.add("seek-by-time", seekByTime)
	s.add("reset-when-out-of-range", resetWhenOutOfRange)
	s.add("fetch-waits-for-data", fetchWaitsForData)
	s.add("fetch-min-bytes", fetchMinBytes)
	s.add("fetch-limits-below-a-record", fetchLimitsBelowARecord)
	s.add("fetch-without-sessions", func(s *session) { readAll(s, kgo.DisableFetchSessions()) })
	s.add("read-committed", func(s *session) { readAll(s, kgo.FetchIsolationLevel(kgo.ReadCommitted())) })
	s.add("pause-and-resume", pauseAndResume)
	s.add("many-topics", manyTopics)
}

func at(offset int64) kgo.Offset { return kgo.NewOffset().At(offset) }

func seekToOffsets(s *session) {
	topic := s.topic(1)
	s.produce(topic, numbers(100)...)
	client := s.reader(topic, 0, at(50))
	expect(s.take(client, 1)[0].Offset, 50, "start")
	for _, offset := range []int64{3, 99, 0} {
		client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}})
		expect(s.take(client, 1)[0].Offset, offset, "after seek")
	}
	expect(s.take(s.reader(topic, 0, kgo.NewOffset().AtEnd().Relative(-10)), 1)[0].Offset, 90, "ten before the end")
	end := s.reader(topic, 0, kgo.NewOffset().AtEnd())
	noneWithin(s, end, time.Second)
	s.produce(topic, "last")
	expect(values(s.take(end, 1)), []string{"last"}, "from the end")
}

func noneWithin(s *session, client *kgo.Client, wait time.Duration) {
	ctx, cancel := context.WithTimeout(s.ctx, wait)
	defer cancel()
	expect(len(client.PollFetches(ctx).Records()), 0, "records")
}

func seekByTime(s *session) {
	topic := s.topic(1)
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	var records []*kgo.Record
	for n, value := range numbers(100) {
		r := record(topic, 0, "", value)
		r.Timestamp = start.Add(time.Duration(n) * time.Second)
		records = append(records, r)
	}
	s.produceRecords(records)
	for after, wanted := range map[int64]string{40_000: "40", 39_001: "40", -1000: "0"} {
		client := s.reader(topic, 0, kgo.NewOffset().AfterMilli(start.UnixMilli()+after))
		expect(string(s.take(client, 1)[0].Value), wanted, fmt.Sprint("first after ", after))
	}
}

func resetWhenOutOfRange(s *session) {
	topic := s.topic(1)
	s.produce(topic, numbers(10)...)
	early := s.reader(topic, 0, at(1000), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	expect(s.take(early, 1)[0].Offset, 0, "reset to the start")

	late := s.reader(topic, 0, at(1000), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	noneWithin(s, late, time.Second)
	s.produce(topic, "new")
	expect(values(s.take(late, 1)), []string{"new"}, "reset to the end")

	strict := s.reader(topic, 0, at(1000), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	ctx, cancel := context.WithTimeout(s.ctx, 10*time.Second)
	defer cancel()
	refused(strict.PollFetches(ctx).Err(), kerr.OffsetOutOfRange, "no reset")
}

// An empty fetch returns as soon as a record arrives, not when its wait is over.
func fetchWaitsForData(s *session) {
	topic := s.topic(1)
	client := s.reader(topic, 0, at(0), kgo.FetchMaxWait(10*time.Second))
	noneWithin(s, client, 500*time.Millisecond)
	s.produce(topic, "x")
	acknowledged := time.Now()
	s.take(client, 1)
	holds(time.Since(acknowledged) < 3*time.Second, "the record came within 3 s of its acknowledgement")
}

func fetchMinBytes(s *session) {
	topic := s.topic(1)
	s.produce(topic, "tiny")
	start := time.Now()
	client := s.reader(topic, 0, at(0), kgo.FetchMinBytes(100_000), kgo.FetchMaxWait(1500*time.Millisecond))
	expect(values(s.take(client, 1)), []string{"tiny"}, "the record comes in the end")
	holds(time.Since(start) > time.Second, "held back until the wait was over")
}

// A record larger than every fetch limit is still delivered.
func fetchLimitsBelowARecord(s *session) {
	topic := s.topic(1)
	wanted := []string{strings.Repeat("a", 200_000), strings.Repeat("b", 300_000), "c"}
	for _, value := range wanted {
		s.produce(topic, value)
	}
	client := s.reader(topic, 0, at(0), kgo.FetchMaxBytes(1000), kgo.FetchMaxPartitionBytes(1000))
	expect(values(s.take(client, 3)), wanted, "records")
}

func readAll(s *session, option kgo.Opt) {
	topic := s.topic(1)
	s.produce(topic, numbers(10)...)
	client := s.reader(topic, 0, at(0), option)
	expect(values(s.take(client, 10)), numbers(10), "records")
	s.produce(topic, "more")
	expect(values(s.take(client, 1)), []string{"more"}, "the next record")
}

func pauseAndResume(s *session) {
	topic := s.topic(2)
	var records []*kgo.Record
	for n, value := range numbers(10) {
		records = append(records, record(topic, int32(n%2), "", value))
	}
	s.produceRecords(records)
	client := s.client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {1: at(0)}}))
	client.PauseFetchPartitions(map[string][]int32{topic: {0}})
	client.AddConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: at(0)}})
	for _, r := range s.take(client, 5) {
		expect(r.Partition, 1, "partition while 0 is paused")
	}
	noneWithin(s, client, 500*time.Millisecond)
	client.ResumeFetchPartitions(map[string][]int32{topic: {0}})
	for _, r := range s.take(client, 5) {
		expect(r.Partition, 0, "partition after resume")
	}
}

func manyTopics(s *session) {
	var topics []string
	for n := range 20 {
		topic := s.topicWith(fmt.Sprint("t", n), 1, nil)
		s.produce(topic, topic)
		topics = append(topics, topic)
	}
	client := s.client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for _, r := range s.take(client, 20) {
		expect(string(r.Value), r.Topic, "record")
	}
}
