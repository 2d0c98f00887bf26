package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Administration of topics: create, describe, add partitions, delete records, delete.
func registerTopics(s *suite) {
	s.add("describe-cluster", describeCluster)
	s.add("api-versions", apiVersions)
	s.add("create-topic", createTopic)
	s.add("create-topic-with-defaults", createTopicWithDefaults)
	s.add("create-topic-validate-only", createTopicValidateOnly)
	s.add("create-topic-refused", createTopicRefused)
	s.add("delete-topic", deleteTopic)
	s.add("create-partitions", createPartitions)
	s.add("list-offsets", listOffsets)
	s.add("offset-for-leader-epoch", offsetForLeaderEpoch)
	s.add("delete-records", deleteRecords)
	s.add("describe-log-dirs", describeLogDirs)
	s.add("unknown-topic", unknownTopic)
	s.add("auto-create-by-producing", autoCreateByProducing)
	s.add("auto-create-by-consuming", autoCreateByConsuming)
	s.add("auto-create-refuses-illegal-name", autoCreateRefusesIllegalName)
}

// The number of brokers.
func brokers() int {
	if said := os.Getenv("BROKERS"); said != "" {
		return must(strconv.Atoi(said))
	}
	return 1
}

// Waits for all brokers, since a restarting one is missing from the metadata.
func allBrokers(s *session) kadm.Metadata {
	eventually(30*time.Second, "all brokers are told", func() bool {
		metadata, err := s.admin.BrokerMetadata(s.ctx)
		return err == nil && len(metadata.Brokers) == brokers()
	})
	return must(s.admin.BrokerMetadata(s.ctx))
}

func describeCluster(s *session) {
	metadata := allBrokers(s)
	holds(metadata.Cluster != "", "the cluster has an id")
	holds(metadata.Brokers[0].Host != "" && metadata.Brokers[0].Port > 0, "the broker has an address")
	response := must(kmsg.NewPtrDescribeClusterRequest().RequestWith(s.ctx, s.client()))
	expect(response.ClusterID, metadata.Cluster, "cluster id of DescribeCluster")
	expect(len(response.Brokers), brokers(), "brokers of DescribeCluster")
}

func apiVersions(s *session) {
	for _, broker := range must(s.admin.ApiVersions(s.ctx)) {
		check(broker.Err)
		for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.JoinGroup, kmsg.ConsumerGroupHeartbeat} {
			_, ok := broker.KeyMaxVersion(key.Int16())
			holds(ok, "the broker knows "+key.Name())
		}
	}
}

func createTopic(s *session) {
	name := s.topicWith("t", 3, config{"retention.ms": "3600000"})
	topic := must(s.admin.ListTopics(s.ctx, name))[name]
	check(topic.Err)
	holds(topic.ID != kadm.TopicID{}, "the topic has an id")
	expect(topic.Partitions.Numbers(), []int32{0, 1, 2}, "partitions")
	for _, partition := range topic.Partitions {
		holds(partition.Leader >= 0, "there is a leader")
		expect(len(partition.Replicas), brokers(), "replicas")
		holds(slices.Contains(partition.ISR, partition.Leader), "the leader is in sync")
		for _, node := range partition.ISR {
			holds(slices.Contains(partition.Replicas, node), "who is in sync is a replica")
		}
		away := len(partition.Replicas) - len(partition.ISR)
		holds(len(partition.OfflineReplicas) <= away, "offline replicas are not in sync")
	}
}

func createTopicWithDefaults(s *session) {
	name := s.unique("t")
	s.topics = append(s.topics, name)
	created := must(s.admin.CreateTopic(s.ctx, -1, -1, nil, name))
	holds(created.NumPartitions >= 1, "the answer tells the number of partitions")
	expect(created.ReplicationFactor, int16(brokers()), "the answer tells the replication factor")
	_, told := created.Configs["retention.ms"]
	holds(told, "the answer tells the topic's config")
	holds(created.ID != kadm.TopicID{}, "the answer tells the topic's id")
}

func createTopicValidateOnly(s *session) {
	name := s.unique("t")
	validated := must(s.admin.ValidateCreateTopics(s.ctx, 1, 1, nil, name))
	check(validated[name].Err)
	holds(!s.listed(name), "validation creates nothing")
}

func createTopicRefused(s *session) {
	create := func(name string, partitions int32, replicas int16) error {
		_, err := s.admin.CreateTopic(s.ctx, partitions, replicas, nil, name)
		return err
	}
	refused(create(s.topic(1), 1, 1), kerr.TopicAlreadyExists, "existing topic")
	for _, illegal := range []string{"with space", "sla/sh", "..", "", strings.Repeat("x", 250)} {
		refused(create(illegal, 1, 1), kerr.InvalidTopicException, "name '"+illegal+"'")
	}
	name := s.unique("refused")
	refused(create(name, 0, 1), kerr.InvalidPartitions, "no partitions")
	refused(create(name, 1, 9), kerr.InvalidReplicationFactor, "more replicas than brokers")
	holds(!s.listed(name), "nothing was created")
}

func deleteTopic(s *session) {
	name := s.topic(2)
	id := must(s.admin.ListTopics(s.ctx, name))[name].ID
	s.produce(name, "old", "older")
	check(must(s.admin.DeleteTopic(s.ctx, name)).Err)
	eventually(10*time.Second, "gone from metadata", func() bool { return !s.listed(name) })
	_, err := s.admin.DeleteTopic(s.ctx, name)
	refused(err, kerr.UnknownTopicOrPartition, "deleted twice")
	s.topic(1)
	holds(must(s.admin.ListTopics(s.ctx, name))[name].ID != id, "a topic of the same name has another id")
	s.produce(name, "new")
	expect(s.latest(name), 1, "and starts empty")
	expect(values(s.read(name, 0, 1)), []string{"new"}, "records")
}

func createPartitions(s *session) {
	name := s.topic(2)
	s.produceRecords([]*kgo.Record{record(name, 1, "", "kept")})
	grow := func(name string, count int) error {
		return must(s.admin.UpdatePartitions(s.ctx, count, name))[name].Err
	}
	check(grow(name, 5))
	eventually(10*time.Second, "five partitions", func() bool {
		listed, err := s.admin.ListEndOffsets(s.ctx, name)
		return err == nil && listed.Error() == nil && len(listed[name]) == 5
	})
	s.produceRecords([]*kgo.Record{record(name, 4, "", "fresh")})
	expect(values(s.read(name, 1, 1)), []string{"kept"}, "old partition")
	expect(values(s.read(name, 4, 1)), []string{"fresh"}, "new partition")
	refused(grow(name, 3), kerr.InvalidPartitions, "fewer partitions")
	refused(grow(name, 5), kerr.InvalidPartitions, "the same number")
	refused(grow(s.unique("absent"), 2), kerr.UnknownTopicOrPartition, "absent topic")
}

func listOffsets(s *session) {
	name := s.topic(1)
	start := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	for _, moment := range []time.Duration{100, 300, 200} {
		r := record(name, 0, "", "x")
		r.Timestamp = start.Add(moment * time.Millisecond)
		s.produceRecords([]*kgo.Record{r})
	}
	expect(s.earliest(name), 0, "earliest")
	expect(s.latest(name), 3, "latest")
	max, _ := must(s.admin.ListMaxTimestampOffsets(s.ctx, name)).Lookup(name, 0)
	expect(max.Offset, 1, "max timestamp")
	expect(max.Timestamp, start.UnixMilli()+300, "the greatest timestamp")
	after := func(moment int64) int64 {
		return offset(must(s.admin.ListOffsetsAfterMilli(s.ctx, start.UnixMilli()+moment, name)), name)
	}
	expect(after(0), 0, "before all")
	expect(after(101), 1, "first at or after")
	// kadm returns the end offset if the broker has no offset for the timestamp.
	expect(after(301), 3, "after all")
}

func offsetForLeaderEpoch(s *session) {
	name := s.topic(1)
	s.produce(name, numbers(5)...)
	epoch := must(s.admin.ListTopics(s.ctx, name))[name].Partitions[0].LeaderEpoch
	request := kadm.OffsetForLeaderEpochRequest{}
	request.Add(name, 0, epoch)
	answer := must(s.admin.OffsetForLeaderEpoch(s.ctx, request))[name][0]
	check(answer.Err)
	expect(answer.EndOffset, 5, "end offset of the current epoch")
	expect(answer.LeaderEpoch, epoch, "epoch")
}

func deleteRecords(s *session) {
	name := s.topic(1)
	s.produce(name, numbers(10)...)
	deleteBefore := func(at int64) kadm.DeleteRecordsResponse {
		offsets := kadm.Offsets{}
		offsets.AddOffset(name, 0, at, -1)
		return must(s.admin.DeleteRecords(s.ctx, offsets))[name][0]
	}
	expect(deleteBefore(4).LowWatermark, 4, "low watermark")
	expect([]int64{s.earliest(name), s.latest(name)}, []int64{4, 10}, "earliest and latest")
	expect(values(s.read(name, 0, 6)), numbers(10)[4:], "what is left")
	refused(deleteBefore(11).Err, kerr.OffsetOutOfRange, "beyond the end")
	expect(deleteBefore(-1).LowWatermark, 10, "-1 deletes up to the end")
	expect(s.produce(name, "next"), []int64{10}, "offsets go on")
}

func describeLogDirs(s *session) {
	name := s.topic(1)
	uncompressed := kgo.ProducerBatchCompression(kgo.NoCompression())
	s.produceRecords([]*kgo.Record{record(name, 0, "", strings.Repeat("x", 10_000))}, uncompressed)
	set := kadm.TopicsSet{}
	set.Add(name, 0)
	// A restarting node does not reply, and a restarted one has yet to catch up.
	eventually(30*time.Second, "each broker has the partition with its size", func() bool {
		told, err := s.admin.DescribeAllLogDirs(s.ctx, set)
		found := 0
		for _, dirs := range told {
			partition, ok := dirs.LookupPartition(name, 0)
			if ok && dirs.Error() == nil && partition.Size >= 10_000 {
				found++
			}
		}
		return err == nil && found == brokers()
	})
}

func unknownTopic(s *session) {
	absent := s.unique("absent")
	refused(must(s.admin.ListTopics(s.ctx, absent))[absent].Err, kerr.UnknownTopicOrPartition, "metadata")
	_, err := s.tryProduce([]*kgo.Record{record(absent, 0, "", "x")}, kgo.UnknownTopicRetries(1))
	refused(err, kerr.UnknownTopicOrPartition, "produce")
	holds(!s.listed(absent), "nothing was created")
}

func autoCreateByProducing(s *session) {
	name := s.unique("t")
	s.topics = append(s.topics, name)
	s.produceRecords([]*kgo.Record{record(name, 0, "", "first")}, kgo.AllowAutoTopicCreation())
	expect(values(s.read(name, 0, 1)), []string{"first"}, "records")
}

func autoCreateByConsuming(s *session) {
	name := s.unique("t")
	s.topics = append(s.topics, name)
	s.client(kgo.ConsumeTopics(name), kgo.AllowAutoTopicCreation())
	eventually(10*time.Second, "consuming creates the topic", func() bool { return s.listed(name) })
}

func autoCreateRefusesIllegalName(s *session) {
	_, err := s.tryProduce([]*kgo.Record{record("not a legal name", 0, "", "x")}, kgo.AllowAutoTopicCreation())
	refused(err, kerr.InvalidTopicException, "produce")
}
