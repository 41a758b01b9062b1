package storm

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// TestRecord: what happens to a server that is hurt is no finding, and anything else is one.
func TestRecord(t *testing.T) {
	for name, each := range map[string]struct {
		does func(r *record)
		want string
	}{
		"answered":  {func(r *record) { r.finish(r.begin("north"), "GET", "") }, ""},
		"failed":    {func(r *record) { r.finish(r.begin("north"), "GET", "503") }, "GET failed"},
		"other":     {func(r *record) { r.hurt("south", "killed"); r.finish(r.begin("north"), "GET", "503") }, "fault killed: GET failed"},
		"hurt":      {func(r *record) { r.hurt("north", "killed"); r.finish(r.begin("north"), "GET", "503") }, ""},
		"meanwhile": {func(r *record) { k := r.begin("north"); r.hurt("north", "killed"); r.finish(k, "GET", "503") }, ""},
		"over": {func(r *record) {
			k := r.begin("north")
			r.hurt("north", "killed")
			r.mended("north", 0, time.Second)
			r.finish(k, "GET", "503")
		}, ""},
		"since": {func(r *record) {
			r.hurt("north", "killed")
			r.mended("north", 0, time.Second)
			r.finish(r.begin("north"), "GET", "503")
		}, "fault none: GET failed"},
		"waited": {func(r *record) {
			k := r.begin("north")
			k.begun = k.begun.Add(-time.Minute)
			r.finish(k, "GET", "")
		}, "GET took 1m"},
		"busy": {func(r *record) {
			k := r.begin("north")
			k.begun = k.begun.Add(-time.Minute)
			r.pulse.busy = []span{{k.begun.Add(-time.Minute), k.begun.Add(59 * time.Second)}}
			r.finish(k, "GET", "")
		}, ""},
		"late again": {func(r *record) { r.hurt("north", "killed"); r.mended("north", time.Minute, time.Second) }, "available only 1m"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := newRecord(5*time.Second, &out)
			r.pulse.begun = time.Now()
			each.does(r)
			if r.failed() != (each.want != "") || !strings.Contains(out.String(), each.want) {
				t.Errorf("it says %q, want %q", &out, each.want)
			}
		})
	}
}

// TestCompare finds what was lost, and what was deleted and is there.
func TestCompare(t *testing.T) {
	here, gone := &space{name: "here"}, &space{name: "gone", ended: true}
	g := &group{server: "north"}
	g.writers = []*writer{{group: g, objects: map[string]*object{
		"here/a": {here, "a", map[string]bool{"1": true}},
		"here/b": {here, "b", map[string]bool{"1": true, absent: true}},
		"gone/c": {gone, "c", map[string]bool{"1": true}},
	}}}
	for name, each := range map[string]struct {
		found map[string]string
		want  string
	}{
		"all":                {map[string]string{"here/a": "1", "here/b": "1"}, ""},
		"without unanswered": {map[string]string{"here/a": "1"}, ""},
		"lost":               {map[string]string{"here/b": "1"}, "lost: here/a"},
		"older":              {map[string]string{"here/a": "0"}, "lost: here/a"},
		"more":               {map[string]string{"here/a": "1", "here/d": "1"}, "here/d is there"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := &run{record: newRecord(time.Second, &out)}
			r.compare(g, each.found)
			if r.record.failed() != (each.want != "") || !strings.Contains(out.String(), each.want) {
				t.Errorf("it says %q, want %q", &out, each.want)
			}
		})
	}
}
