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
	rows   []row
	at     map[caller]int // places in rows
	others counts
}

// row is a user in a table. The counts begin when the user came in, and the rank is
// that of the user who made room, and the requests since.
type row struct {
	counts
	who  caller
	rank int64
}

func newTable() *table { return &table{at: map[caller]int{}} }

func (t *table) add(who caller, more counts) {
	i, ok := t.at[who]
	if !ok {
		i = t.enter(who)
	}
	t.rows[i].add(more)
	t.rows[i].rank += more.requests
}

// enter gives a user a row, and returns its place.
func (t *table) enter(who caller) (place int) {
	who.user = strings.Clone(who.user) // it may be a part of something large
	if place = len(t.rows); place < mostUsers {
		t.rows = append(t.rows, row{who: who})
	} else {
		place = 0
		for i := range t.rows {
			if t.rows[i].rank < t.rows[place].rank {
				place = i
			}
		}
		last := &t.rows[place]
		t.others.add(last.counts)
		delete(t.at, last.who)
		*last = row{who: who, rank: last.rank}
	}
	t.at[who] = place
	return place
}

// addTo adds the table to sums by user and returns the others.
func (t *table) addTo(sums map[asker]counts) counts {
	for _, r := range t.rows {
		sum := sums[r.who.asker()]
		sum.add(r.counts)
		sums[r.who.asker()] = sum
	}
	return t.others
}

func (t *table) clear() {
	clear(t.rows)
	t.rows = t.rows[:0]
	clear(t.at)
	t.others = counts{}
}
