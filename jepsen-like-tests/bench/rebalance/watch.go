// Who owns each partition, when it was consumed, and how long it stood still.
package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const nobody = -1

// lateness is what a partition that nobody gave up may lag behind its records before it counts as
// stopped.
const lateness = 300 * time.Millisecond

type span struct {
	from, to time.Time
}

type partition struct {
	owner int
	// When its last owner gave it up, if nobody has consumed it since.
	released time.Time
	// The same, if nobody was given it since.
	unowned time.Time
	// When it was given to its owner.
	given time.Time
	// When a record that was new was consumed last, and the offset after it.
	consumed time.Time
	next     int64
}

type watch struct {
	state      sync.Mutex
	interval   time.Duration
	partitions []partition
	since      time.Time
	changed    time.Time
	stops      []span
	gaps       []span
	epochs     map[int32]bool
	handed     int
	again      int64
	twice      int
}

func newWatch(partitions int, interval time.Duration) *watch {
	w := &watch{partitions: make([]partition, partitions), interval: interval}
	for place := range w.partitions {
		w.partitions[place].owner = nobody
	}
	w.begin(time.Now())
	return w
}

// begin starts a count. What stands still already counts from now.
func (w *watch) begin(now time.Time) {
	w.state.Lock()
	defer w.state.Unlock()
	w.since, w.changed = now, now
	w.stops, w.gaps, w.epochs = nil, nil, map[int32]bool{}
	w.handed, w.again, w.twice = 0, 0, 0
}

// clip forgets what was stopped before; the members will see only now what happened meanwhile.
func (w *watch) clip(since time.Time) {
	w.state.Lock()
	defer w.state.Unlock()
	w.since, w.changed = since, time.Now()
}

func (w *watch) saw(epoch int32) {
	w.state.Lock()
	defer w.state.Unlock()
	if epoch > 0 {
		w.epochs[epoch] = true
	}
}

func (w *watch) assigned(member int, which []int32) {
	w.state.Lock()
	defer w.state.Unlock()
	now := time.Now()
	for _, number := range which {
		p := &w.partitions[number]
		if p.owner != nobody && p.owner != member {
			w.twice++
		}
		if !p.unowned.IsZero() {
			w.gaps = append(w.gaps, span{p.unowned, now})
			p.unowned = time.Time{}
		}
		p.owner, p.given = member, now
		w.changed = now
	}
}

func (w *watch) released(member int, which []int32) {
	w.state.Lock()
	defer w.state.Unlock()
	now := time.Now()
	for _, number := range which {
		p := &w.partitions[number]
		if p.owner != member {
			continue
		}
		p.owner, p.unowned = nobody, now
		if p.released.IsZero() {
			p.released = now
		}
		w.changed = now
	}
}

// consumed is the end of a stop: records that nobody had before. A partition stands still while it
// has no owner, and while a record waits in it for its owner.
func (w *watch) consumed(now time.Time, records []*kgo.Record) {
	w.state.Lock()
	defer w.state.Unlock()
	p := &w.partitions[records[0].Partition]
	fresh := records
	for len(fresh) > 0 && fresh[0].Offset < p.next {
		fresh = fresh[1:]
	}
	w.again += int64(len(records) - len(fresh))
	if len(fresh) == 0 {
		return
	}
	waits := fresh[0].Timestamp
	if waits.Before(p.consumed) {
		waits = p.consumed
	}
	switch {
	case !p.released.IsZero():
		stop := span{p.released, now}
		if idle := waits.Sub(p.given); idle > 0 && p.given.After(p.released) {
			stop.to = now.Add(-idle)
		}
		w.stops = append(w.stops, stop)
		w.handed++
	case now.Sub(waits) > lateness:
		w.stops = append(w.stops, span{waits, now})
	}
	p.released, p.consumed = time.Time{}, now
	p.next = fresh[len(fresh)-1].Offset + 1
}

// quiet tells whether everything is owned and consumed, and nobody came or went for that long.
func (w *watch) quiet(long time.Duration) bool {
	w.state.Lock()
	defer w.state.Unlock()
	now := time.Now()
	if now.Sub(w.changed) < long {
		return false
	}
	for place := range w.partitions {
		p := &w.partitions[place]
		if p.owner == nobody || now.Sub(p.consumed) > 2*w.interval+time.Second {
			return false
		}
	}
	return true
}

type totals struct {
	// Partition-seconds without consumption, the partitions that this concerns, the longest.
	Stopped float64 `json:"stopped"`
	Stops   int     `json:"stops"`
	Longest float64 `json:"longest"`
	// Partition-seconds without an owner.
	Unowned float64 `json:"unowned"`
	// Partitions that were given up and consumed again.
	Handed int `json:"handed"`
	// Generations in which a member was; or, by KIP-848, epochs in which one was given something, or
	// had to give it up.
	Epochs []int32 `json:"epochs"`
	// From the begin until the last partition was given, or given up.
	Settled float64 `json:"settled"`
	// Records that were consumed again, and partitions that were given while another had them.
	Again int64 `json:"again"`
	Twice int   `json:"twice"`
	Since int64 `json:"since"`
	Until int64 `json:"until"`
}

func (w *watch) end() totals {
	w.state.Lock()
	defer w.state.Unlock()
	t := totals{
		Handed: w.handed, Epochs: slices.Sorted(maps.Keys(w.epochs)), Again: w.again, Twice: w.twice,
		Settled: max(0, w.changed.Sub(w.since).Seconds()),
		Since:   w.since.UnixNano(), Until: time.Now().UnixNano(),
	}
	within := func(s span) float64 {
		if s.from.Before(w.since) {
			s.from = w.since
		}
		return max(0, s.to.Sub(s.from).Seconds())
	}
	for _, s := range w.stops {
		if long := within(s); long > 0 {
			t.Stopped, t.Stops, t.Longest = t.Stopped+long, t.Stops+1, max(t.Longest, long)
		}
	}
	for _, s := range w.gaps {
		t.Unowned += within(s)
	}
	return t
}
