package fairness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/feed"
	"github.com/sailplane-dev/sailplane/pkg/internal/callers"
)

// holder is what has a limit for the objects that are stored.
type holder struct {
	of   holderOf
	name string
}

// holderOf says whose objects they are.
type holderOf int

const (
	// inNamespace: those in a namespace; without a name those that have none.
	inNamespace holderOf = iota
	// byUser: those that a user created.
	byUser
	// byAccounts: those that the service accounts of a namespace created.
	byAccounts
)

// String says who has so many bytes.
func (h holder) String() string {
	switch {
	case h.of == byUser:
		return fmt.Sprintf("what user %q created has", h.name)
	case h.of == byAccounts:
		return fmt.Sprintf("what the service accounts of namespace %q created has", h.name)
	case h.name == "":
		return "what has no namespace has"
	}
	return fmt.Sprintf("namespace %q has", h.name)
}

// limit is that of a holder: its field, the value there, and how many times that it is.
func (h holder) limit(l Limits) (field string, value, times int) {
	switch h.of {
	case byUser:
		return "StoredBytesPerUser", l.StoredBytesPerUser, 1
	case byAccounts:
		return "StoredBytesPerUser", l.StoredBytesPerUser, l.factor()
	}
	return "StoredBytesPerNamespace", l.StoredBytesPerNamespace, 1
}

// creations are the holders of what a user created.
func creations(user string) []holder {
	if namespace := callers.Namespace(user); namespace != "" {
		return []holder{{byUser, user}, {byAccounts, namespace}}
	}
	return []holder{{byUser, user}}
}

// enlarging is a write that runs.
type enlarging struct {
	by      int64
	holders []holder
	others  []int64  // by how much others enlarge what each of them has
	creates feed.UID // zero: it replaces an object
}

// room refuses what does not fit into a namespace, beside what has none, or beside what its creator created. Otherwise
// it notes by how much that grows until the storage has answered: then the feed, which catches up with what was
// answered, has it.
func (w *written) room(ctx context.Context, l Limits, c *caller, p controlplane.Write) (done func(bool), err error) {
	feed := w.feed.Load()
	if feed == nil {
		for _, h := range w.holders(l, c, p, nil) {
			field, value, _ := h.limit(l)
			if e := tooMany(field, c.name, 1, "%d: the objects are still being counted", value); w.judge.refuses(ctx, l, e) {
				return nil, e.error
			}
		}
		return nil, nil
	}
	before, known := w.before(p)
	grows := p.Bytes
	if known {
		if grows = adds(p, before); grows == 0 {
			return nil, nil
		}
	}
	x := &enlarging{by: grows, holders: w.holders(l, c, p, before)}
	if w.made != nil && p.Replaces == 0 {
		x.creates = c.creates
	}
	near := w.begin(x, c)
	done = func(kept bool) { w.end(x, kept) }
	if !near && len(w.over(feed, l, x, grows+slack)) == 0 {
		return done, nil
	}
	// Those that the others add, and that were stored since then, may count twice.
	asked := time.Now()
	if err := feed.CatchUp(ctx); err != nil {
		done(false)
		return nil, fmt.Errorf("measure what is stored beside %s %q: %w", p.Resource, p.Name, err)
	}
	if w.made != nil {
		w.made.sweep(asked)
	}
	if before, known = w.before(p); !known {
		before = nil // another write has replaced it, or it cannot be read
	}
	added := adds(p, before)
	info, _ := request.RequestInfoFrom(ctx)
	if added == 0 || deletes(info) || before != nil && before.Deleting && added <= grace {
		return done, nil
	}
	for _, h := range w.over(feed, l, x, added) {
		field, value, times := h.limit(l)
		e := tooMany(field, c.name, 1, "%d%s: %s %d bytes, and %s %q adds %d",
			value, multiple(times), h, w.stored(feed, h), p.Resource, p.Name, added)
		if w.judge.refuses(ctx, l, e) {
			done(false)
			return nil, e.error
		}
	}
	return done, nil
}

// holders are those whose limits a write has to keep. The objects from before the server started, and those of
// callers without limits, have no creator.
func (w *written) holders(l Limits, c *caller, p controlplane.Write, before *feed.Object) []holder {
	var all []holder
	if l.StoredBytesPerUser > 0 && w.made != nil {
		creator := c.name
		if p.Replaces != 0 {
			creator = w.made.creator(before)
		}
		if creator != "" {
			all = creations(creator)
		}
	}
	if l.StoredBytesPerNamespace > 0 {
		all = append(all, holder{inNamespace, p.Namespace})
	}
	return all
}

// stored is how many bytes a holder has, as far as the feed is.
func (w *written) stored(feed *feed.Feed, h holder) int64 {
	if h.of == inNamespace {
		return feed.Bytes(h.name)
	}
	return w.made.stored(h)
}

// over are the holders that get over their limits when so many bytes are added.
func (w *written) over(feed *feed.Feed, l Limits, x *enlarging, added int64) []holder {
	var all []holder
	for i, h := range x.holders {
		if _, value, times := h.limit(l); w.stored(feed, h)+x.others[i]+added > int64(value)*int64(times) {
			all = append(all, h)
		}
	}
	return all
}

func deletes(info *request.RequestInfo) bool {
	return info != nil && (info.Verb == "delete" || info.Verb == "deletecollection")
}

// begin notes a write, and tells whether it is time to catch up.
func (w *written) begin(x *enlarging, c *caller) (near bool) {
	if x.creates != (feed.UID{}) {
		w.made.begin(x.creates, c.name)
	}
	if len(x.holders) == 0 {
		return false
	}
	x.others = make([]int64, len(x.holders))
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open == nil {
		w.open = map[holder]int64{}
	}
	for i, h := range x.holders {
		x.others[i] = w.open[h]
		w.open[h] += x.by
	}
	if w.since += x.by; w.since > slack/4 {
		w.since, near = 0, true
	}
	return near
}

func (w *written) end(x *enlarging, kept bool) {
	if x.creates != (feed.UID{}) {
		w.made.end(x.creates, kept)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range x.holders {
		if w.open[h] -= x.by; w.open[h] <= 0 {
			delete(w.open, h)
		}
	}
}
