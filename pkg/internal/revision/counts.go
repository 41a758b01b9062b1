package revision

import "strings"

// maxCounts is how many spans are counted. API servers ask for one span per
// resource, again and again.
const maxCounts = 512

// Counts knows how many keys some spans have now, so that a log need not count them
// for each reader, and how many follow the pages that were read. The caller holds a
// lock. The zero value is ready.
type Counts struct {
	spans map[Span]int64
	rests map[rest]int64
}

// rest is what is left of a list that is read in pages, at one revision.
type rest struct {
	Span
	at int64
}

// Get is how many keys the span had at a revision, if that is known: of the current
// one, or of the rest of a list.
func (c *Counts) Get(s Span, at, current int64) (n int64, known bool) {
	if s.End == "" {
		return 0, false
	}
	if n, known = c.rests[rest{s, at}]; !known && at == current {
		n, known = c.spans[s]
	}
	return n, known
}

// Set keeps how many keys the span has, unless it is a span that is asked for only
// once: the rest of a list that is read in pages.
func (c *Counts) Set(s Span, n int64) {
	if s.End == "" || strings.HasSuffix(s.Key, "\x00") {
		return
	}
	if c.spans == nil || len(c.spans) >= maxCounts {
		c.spans = map[Span]int64{}
	}
	c.spans[s] = n
}

// SetRest keeps how many keys of a span follow its first ones, which were read at a
// revision: who reads in pages asks for them next.
func (c *Counts) SetRest(s Span, at int64, first *Page) {
	n := len(first.KVs)
	if n == 0 {
		return
	}
	if c.rests == nil || len(c.rests) >= maxCounts {
		c.rests = map[rest]int64{}
	}
	c.rests[rest{Span{Key: first.KVs[n-1].Key + "\x00", End: s.End}, at}] = first.Count - int64(n)
}

// Apply takes in an event.
func (c *Counts) Apply(e *Event) {
	var step int64
	switch {
	case e.Delete:
		step = -1
	case e.Previous == nil:
		step = 1
	default:
		return
	}
	for s := range c.spans {
		if s.Has(e.KV.Key) {
			c.spans[s] += step
		}
	}
}
