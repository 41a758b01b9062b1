package insight

import "strings"

// mostUsers is how many users a table has. The one who asked least makes room for a
// new one, so that users cannot fill the memory.
const mostUsers = 256

// caller is a user of a plane.
type caller struct {
	plane *counter
	user  string
}

// asker is a caller as a report has it: a plane that stopped and was started again is
// one.
type asker struct{ plane, user string }

func (c caller) asker() asker { return asker{c.plane.name(), c.user} }

// counts are those of one user, or of several.
type counts struct {
	requests, failed int64
	seconds          float64
}

func (c *counts) add(more counts) {
	c.requests += more.requests
	c.failed += more.failed
	c.seconds += more.seconds
}

// table counts the requests of the users who ask most, and has the sum of all others:
// the space-saving algorithm of Metwally, Agrawal and El Abbadi, "Efficient
// Computation of Frequent and Top-k Elements in Data Streams" (2005). Of n requests,
// a user with more than n/mostUsers is always in the table.
type table struct {
	by     map[caller]*row
	others counts
}

// row is a user in a table. The counts begin when the user came in, and the rank is
// that of the user who made room, and the requests since.
type row struct {
	counts
	rank int64
}

func newTable() *table { return &table{by: map[caller]*row{}} }

func (t *table) add(who caller, more counts) {
	r := t.by[who]
	if r == nil {
		r = t.enter(who)
	}
	r.add(more)
	r.rank += more.requests
}

// enter makes a row for a user.
func (t *table) enter(who caller) *row {
	r := &row{}
	if len(t.by) >= mostUsers {
		var last caller
		for candidate, of := range t.by {
			if r.rank == 0 || of.rank < r.rank {
				last, r.rank = candidate, of.rank
			}
		}
		t.others.add(t.by[last].counts)
		delete(t.by, last)
	}
	who.user = strings.Clone(who.user) // it may be a part of something large
	t.by[who] = r
	return r
}

// addTo adds the table to sums by user and returns the others.
func (t *table) addTo(sums map[asker]counts) counts {
	for who, r := range t.by {
		sum := sums[who.asker()]
		sum.add(r.counts)
		sums[who.asker()] = sum
	}
	return t.others
}

func (t *table) clear() {
	clear(t.by)
	t.others = counts{}
}
