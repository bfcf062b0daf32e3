// The members of the group, each a client of its own.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// settleLimit is how long a group may take at most to come to rest.
const settleLimit = time.Minute

type group struct {
	p       parameters
	watch   *watch
	asker   *kgo.Client
	state   sync.Mutex
	members map[int]*kgo.Client
}

func newGroup(p parameters) *group {
	g := &group{
		p: p, watch: newWatch(p.Partitions, milliseconds(p.Interval)), asker: client(p),
		members: map[int]*kgo.Client{},
	}
	if p.Protocol == "consumer" {
		return g // An epoch that gives nobody anything is no rebalance.
	}
	go func() {
		for range time.Tick(50 * time.Millisecond) {
			for _, epoch := range g.memberEpochs() {
				g.watch.saw(epoch)
			}
		}
	}()
	return g
}

// join starts the member at that place; the last one is static.
func (g *group) join(place int) {
	p := g.p
	name := func(after func(int, []int32)) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, c *kgo.Client, all map[string][]int32) {
			if _, epoch := c.GroupMetadata(); epoch > 0 && len(all[p.Topic]) > 0 {
				g.watch.saw(epoch)
			}
			after(place, all[p.Topic])
		}
	}
	revoked := name(g.watch.released)
	options := []kgo.Opt{
		kgo.ConsumerGroup(p.Group), kgo.ConsumeTopics(p.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(milliseconds(p.Session)), kgo.HeartbeatInterval(milliseconds(p.Heartbeat)),
		kgo.OnPartitionsAssigned(name(g.watch.assigned)),
		kgo.OnPartitionsLost(name(g.watch.released)),
		kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, all map[string][]int32) {
			revoked(ctx, c, all)
			// As an application does: the next owner goes on where this one stopped.
			_ = c.CommitUncommittedOffsets(ctx)
		}),
	}
	switch p.Protocol {
	case "eager":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	case "cooperative":
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	case "consumer":
		options = append(options, kgo.Balancers(kgo.StickyBalancer()), kgo.ServerSideBalancer())
	default:
		check(fmt.Errorf("no protocol: %s", p.Protocol))
	}
	if place == p.Members-1 {
		options = append(options, kgo.InstanceID(instance(place)))
	}
	c := client(p, options...)
	g.state.Lock()
	g.members[place] = c
	g.state.Unlock()
	go func() {
		for {
			fetches := c.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			now := time.Now()
			fetches.EachPartition(func(some kgo.FetchTopicPartition) {
				if len(some.Records) > 0 {
					g.watch.consumed(now, some.Records)
				}
			})
		}
	}()
}

// leave closes the member: it gives up and commits what it has, and says so, unless it is static and
// the protocol the classic one.
func (g *group) leave(place int) {
	g.state.Lock()
	c := g.members[place]
	delete(g.members, place)
	g.state.Unlock()
	member, _ := c.GroupMetadata()
	c.Close()
	if g.p.Protocol == "consumer" && place == g.p.Members-1 {
		g.leaveForAWhile(member, place)
	}
}

func instance(place int) string { return fmt.Sprint("instance-", place) }

// leaveForAWhile says what franz-go 1.22.3 means to say when a static member closes: it leaves its
// instance's name out, which both brokers refuse, so that the name would be held until its session
// ends.
func (g *group) leaveForAWhile(member string, place int) {
	name := instance(place)
	request := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	request.Group, request.MemberID, request.MemberEpoch = g.p.Group, member, -2
	request.InstanceID = &name
	answer, err := request.RequestWith(context.Background(), g.asker)
	if err == nil {
		err = kerr.ErrorForCode(answer.ErrorCode)
	}
	check(err)
}

func (g *group) memberEpochs() []int32 {
	g.state.Lock()
	defer g.state.Unlock()
	var epochs []int32
	for _, c := range g.members {
		if _, epoch := c.GroupMetadata(); epoch > 0 {
			epochs = append(epochs, epoch)
		} else {
			epochs = append(epochs, 0)
		}
	}
	return epochs
}

// epochs tells the group's epoch and the lowest and highest of its members. Of a classic group the
// coordinator does not tell its generation, but members that agree know it.
func (g *group) epochs() [3]int32 {
	all := g.memberEpochs()
	if len(all) == 0 {
		return [3]int32{}
	}
	lowest, highest := all[0], all[0]
	for _, epoch := range all {
		lowest, highest = min(lowest, epoch), max(highest, epoch)
	}
	if g.p.Protocol != "consumer" {
		return [3]int32{highest, lowest, highest}
	}
	request := kmsg.NewPtrConsumerGroupDescribeRequest()
	request.Groups = []string{g.p.Group}
	answer, err := request.RequestWith(context.Background(), g.asker)
	if err != nil || len(answer.Groups) != 1 || answer.Groups[0].ErrorCode != 0 {
		return [3]int32{-1, lowest, highest}
	}
	return [3]int32{answer.Groups[0].Epoch, lowest, highest}
}

// settle waits until every partition has an owner and is consumed, all members have come to the
// group's epoch, and nothing has changed for as long as every member needs to hear of a change.
func (g *group) settle() bool {
	for until := time.Now().Add(settleLimit); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
		if !g.watch.quiet(milliseconds(g.p.Quiet)) {
			continue
		}
		if epochs := g.epochs(); epochs[0] == epochs[1] && epochs[1] == epochs[2] {
			return true
		}
	}
	return false
}

// close ends all members at once.
func (g *group) close() {
	var closing sync.WaitGroup
	for _, c := range g.members {
		closing.Add(1)
		go func() {
			defer closing.Done()
			c.Close()
		}()
	}
	closing.Wait()
}
