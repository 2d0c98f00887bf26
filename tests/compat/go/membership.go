package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Members of groups that join, leave and rejoin, with both protocols.
func registerMembership(s *suite) {
	for name, balancer := range map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
		"sticky": kgo.StickyBalancer(), "cooperative": kgo.CooperativeStickyBalancer(),
	} {
		s.addSlow("classic-rebalance-"+name, func(s *session) { churn(s, kgo.Balancers(balancer)) })
	}
	// The client names the broker's assignor by its own balancer: sticky stands for uniform.
	s.addSlow("consumer-protocol-rebalance-uniform", func(s *session) {
		churn(s, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	})
	s.addSlow("consumer-protocol-rebalance-range", func(s *session) {
		churn(s, kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer()))
	})
	s.addSlow("classic-static-membership", staticMembership)
	s.addSlow("classic-pattern-subscription", patternSubscription)
	s.addSlow("classic-new-partitions-are-assigned", newPartitionsAreAssigned)
}

type partition struct {
	topic  string
	number int32
}

// member is one consumer in a goroutine of its own; it records every message and commits before the next poll.
type member struct {
	client *kgo.Client
	stop   context.CancelFunc
	ended  chan struct{}

	mutex       sync.Mutex
	assigned    map[partition]bool
	processed   []string
	assignments int
	failure     error
}

// join makes a member of the group. It blocks rebalances from each poll to the commit that follows it.
func join(s *session, group, topic string, options ...kgo.Opt) *member {
	m := &member{ended: make(chan struct{}), assigned: make(map[partition]bool)}
	base := []kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { m.note(added, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, removed map[string][]int32) { m.note(removed, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { m.note(lost, false) }),
	}
	m.client = s.client(append(base, options...)...)
	ctx, stop := context.WithCancel(s.ctx)
	m.stop = stop
	go m.work(ctx)
	return m
}

func (m *member) note(partitions map[string][]int32, added bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if added {
		m.assignments++
	}
	for topic, numbers := range partitions {
		for _, number := range numbers {
			if added {
				m.assigned[partition{topic, number}] = true
			} else {
				delete(m.assigned, partition{topic, number})
			}
		}
	}
}

func (m *member) work(ctx context.Context) {
	defer close(m.ended)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		records := fetches.Records()
		err := fetches.Err()
		if len(records) > 0 {
			// Not with ctx: records polled before the stop are committed, too.
			err = m.client.CommitRecords(context.Background(), records...)
		}
		m.mutex.Lock()
		for _, r := range records {
			m.processed = append(m.processed, fmt.Sprintf("%s/%d@%d", r.Topic, r.Partition, r.Offset))
		}
		if err != nil && ctx.Err() == nil {
			m.failure = err
		}
		m.mutex.Unlock()
		m.client.AllowRebalance()
	}
	m.client.CloseAllowingRebalance()
}

func (m *member) leave() {
	m.stop()
	select {
	case <-m.ended:
	case <-time.After(20 * time.Second):
		fail("the member leaves in time")
	}
	check(m.failure)
}

func (m *member) holdings() []partition {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	check(m.failure)
	var held []partition
	for p := range m.assigned {
		held = append(held, p)
	}
	slices.SortFunc(held, func(a, b partition) int { return int(a.number - b.number) })
	return held
}

func (m *member) records() []string {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return slices.Clone(m.processed)
}

func partitionsOf(topic string, count int32) []partition {
	var all []partition
	for number := range count {
		all = append(all, partition{topic, number})
	}
	return all
}

// settled waits until each partition has exactly one owner, and each member at least one of them.
func settled(members []*member, partitions []partition, limit time.Duration) {
	eventually(limit, "the group settles", func() bool {
		owners := make(map[partition]int)
		for _, m := range members {
			held := m.holdings()
			if len(held) == 0 {
				return false
			}
			for _, p := range held {
				owners[p]++
			}
		}
		for _, p := range partitions {
			if owners[p] != 1 {
				return false
			}
		}
		return len(owners) == len(partitions)
	})
}

func balanced(size int, members ...*member) {
	for _, m := range members {
		expect(len(m.holdings()), size, "partitions of a member")
	}
}

// churn lets members come and go while records flow; every record is processed exactly once.
func churn(s *session, options ...kgo.Opt) {
	topic, group := s.topic(6), s.unique("g")
	partitions := partitionsOf(topic, 6)
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	sent := feed(ctx, s, topic)

	first := join(s, group, topic, options...)
	settled([]*member{first}, partitions, 40*time.Second)
	second := join(s, group, topic, options...)
	settled([]*member{first, second}, partitions, 40*time.Second)
	third := join(s, group, topic, options...)
	settled([]*member{first, second, third}, partitions, 40*time.Second)
	balanced(2, first, second, third)
	first.leave()
	settled([]*member{second, third}, partitions, 40*time.Second)
	balanced(3, second, third)
	stop()

	total, members := <-sent, []*member{first, second, third}
	counts := make(map[string]int)
	eventually(20*time.Second, fmt.Sprint("all ", total, " records are processed"), func() bool {
		return len(first.records())+len(second.records())+len(third.records()) >= total
	})
	second.leave()
	third.leave()
	for _, m := range members {
		for _, r := range m.records() {
			counts[r]++
		}
	}
	expect(len(counts), total, "distinct records")
	for r, n := range counts {
		expect(n, 1, "times that "+r+" was processed")
	}
	for _, lag := range s.lag(group).Lag.Sorted() {
		expect(lag.Lag, 0, "lag after all is committed")
	}
}

// feed produces until it is stopped, and then reports the number of records.
func feed(ctx context.Context, s *session, topic string) <-chan int {
	client := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	sent := make(chan int, 1)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			client.Produce(s.ctx, record(topic, int32(n%6), "", strconv.Itoa(n)), nil)
			time.Sleep(10 * time.Millisecond)
		}
		// The number of processed records would miss unflushed ones.
		_ = client.Flush(s.ctx)
		sent <- n
	}()
	return sent
}

// A static member that rejoins in time keeps its partitions; otherwise it loses them.
func staticMembership(s *session) {
	topic, group := s.topic(4), s.unique("g")
	partitions := partitionsOf(topic, 4)
	static := func(instance string) *member {
		return join(s, group, topic, kgo.InstanceID(instance), kgo.SessionTimeout(6*time.Second))
	}
	one, two := static("one"), static("two")
	settled([]*member{one, two}, partitions, 40*time.Second)
	held, rebalances := one.holdings(), two.assignments
	one.leave()
	one = static("one")
	settled([]*member{one, two}, partitions, 40*time.Second)
	expect(one.holdings(), held, "the returning member's partitions")
	expect(two.assignments, rebalances, "rebalances that the other member saw")
	one.leave()
	settled([]*member{two}, partitions, 25*time.Second)
	two.leave()
}

// The client matches topic names, and finds a topic that is created later.
func patternSubscription(s *session) {
	first := s.topicWith("match-1", 1, nil)
	s.topicWith("other", 1, nil)
	m := join(s, s.unique("g"), "^"+s.unique("match-")+"[0-9]+$", kgo.ConsumeRegex(), kgo.MetadataMaxAge(500*time.Millisecond))
	settled([]*member{m}, []partition{{first, 0}}, 20*time.Second)
	second := s.topicWith("match-2", 1, nil)
	settled([]*member{m}, []partition{{first, 0}, {second, 0}}, 20*time.Second)
	m.leave()
}

func newPartitionsAreAssigned(s *session) {
	topic := s.topic(1)
	m := join(s, s.unique("g"), topic, kgo.MetadataMaxAge(500*time.Millisecond))
	settled([]*member{m}, partitionsOf(topic, 1), 20*time.Second)
	check(must(s.admin.UpdatePartitions(s.ctx, 3, topic))[topic].Err)
	settled([]*member{m}, partitionsOf(topic, 3), 20*time.Second)
	m.leave()
}
