package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Background work of the broker on stored records: compaction and retention.
func registerStorage(s *suite) {
	s.addSlow("compaction", compaction)
	s.addSlow("compaction-removes-tombstones", compactionRemovesTombstones)
	s.add("compacted-topic-needs-keys", compactedTopicNeedsKeys)
	s.addSlow("retention-by-time", retentionByTime)
	s.addSlow("retention-by-size", retentionBySize)
}

var compacted = config{
	"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100",
}

// contents are all records of the partition, oldest first, without the fillers. The last filler is never
// compacted away, so reading up to it is reading to the end.
func contents(s *session, topic string) []*kgo.Record {
	end := s.latest(topic)
	client := s.reader(topic, 0, kgo.NewOffset().AtStart())
	defer client.Close()
	var found []*kgo.Record
	last := int64(-1)
	for last < end-1 {
		for _, r := range s.take(client, 1) {
			holds(r.Offset > last, "offsets grow")
			last = r.Offset
			if string(r.Key) != "filler" {
				found = append(found, r)
			}
		}
	}
	return found
}

// until produces filler records, so that segments roll, until done holds for the contents.
func until(s *session, topic string, limit time.Duration, what string, done func([]*kgo.Record) bool) {
	eventually(limit, what, func() bool {
		s.produceRecords([]*kgo.Record{record(topic, 0, "filler", "filler")})
		time.Sleep(400 * time.Millisecond)
		return done(contents(s, topic))
	})
}

func compaction(s *session) {
	topic := s.topicWith("t", 1, compacted)
	wanted := make(map[string]string)
	for version := range 5 {
		var records []*kgo.Record
		for n := range 10 {
			key := fmt.Sprint("key-", n)
			records = append(records, record(topic, 0, key, strconv.Itoa(version)))
			wanted[key] = fmt.Sprintf("%d@%d", version, version*10+n)
		}
		s.produceRecords(records)
		time.Sleep(150 * time.Millisecond)
	}
	until(s, topic, 60*time.Second, "one record for each key", func(records []*kgo.Record) bool {
		last := make(map[string]string)
		for _, r := range records {
			last[string(r.Key)] = fmt.Sprintf("%s@%d", r.Value, r.Offset)
		}
		// The last value of each key is always present, at its offset.
		expect(last, wanted, "last values")
		return len(records) == 10
	})
}

func compactionRemovesTombstones(s *session) {
	topic := s.topicWith("t", 1, compacted)
	s.produceRecords([]*kgo.Record{record(topic, 0, "dead", "old"), record(topic, 0, "alive", "kept")})
	time.Sleep(150 * time.Millisecond)
	s.produceRecords([]*kgo.Record{{Topic: topic, Key: []byte("dead")}})
	until(s, topic, 70*time.Second, "the tombstone and what it deletes are gone", func(records []*kgo.Record) bool {
		dead, alive := 0, 0
		for _, r := range records {
			if string(r.Key) == "dead" {
				dead++
			} else {
				alive++
			}
		}
		expect(alive, 1, "records of the live key")
		return dead == 0
	})
}

func compactedTopicNeedsKeys(s *session) {
	topic := s.topicWith("t", 1, config{"cleanup.policy": "compact"})
	_, err := s.tryProduce([]*kgo.Record{{Topic: topic, Value: []byte("no key")}})
	refused(err, kerr.InvalidRecord, "a record without a key")
}

func retentionByTime(s *session) {
	topic := s.topicWith("t", 1, config{"retention.ms": "1000", "segment.ms": "500"})
	s.produce(topic, numbers(10)...)
	eventually(60*time.Second, "all are deleted once their time is over", func() bool { return s.earliest(topic) == 10 })
	expect(s.produce(topic, "new"), []int64{10}, "offsets go on")
}

func retentionBySize(s *session) {
	topic := s.topicWith("t", 1, config{"retention.bytes": "200000", "segment.bytes": "1048576"})
	for range 4 {
		var records []*kgo.Record
		for range 100 {
			records = append(records, record(topic, 0, "", strings.Repeat("x", 9000)))
		}
		s.produceRecords(records, kgo.ProducerBatchCompression(kgo.NoCompression()))
	}
	eventually(60*time.Second, "the oldest are deleted", func() bool { return s.earliest(topic) > 0 })
	earliest := s.earliest(topic)
	holds(earliest < 400, "not all are deleted")
	expect(s.latest(topic), 400, "end offset")
	first := s.read(topic, 0, 1)[0].Offset
	holds(earliest <= first && first < 400, "the first that is left, or a later one if more was deleted since")
}
