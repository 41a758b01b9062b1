package revision

import "strings"

// maxCounts is how many spans are counted. API servers ask for one span per
// resource, again and again.
const maxCounts = 512

// Counts knows how many keys some spans have now, so that a log need not count them
// for each reader. The caller holds a lock. The zero value is ready.
type Counts struct {
	spans map[Span]int64
}

// Get is how many keys the span has, if that is known.
func (c *Counts) Get(s Span) (n int64, known bool) {
	n, known = c.spans[s]
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
