package controlplane_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// reader is a part that says when it is installed and when it reads, and what it
// declares when it has read.
type reader struct {
	name string
	does func(string)
}

func (r reader) PartName() string { return r.name }

func (r reader) Install(p *controlplane.Plan) error {
	p.Read(func() error {
		r.does("read " + r.name)
		if strings.HasPrefix(r.name, "bad") {
			return errors.New("what it says is wrong")
		}
		p.Work(controlplane.Work{Name: r.name, Start: func(context.Context, *controlplane.Plane) error {
			r.does("start " + r.name)
			return nil
		}})
		return nil
	})
	r.does("install " + r.name)
	return nil
}

// TestRead calls what parts read with, in their order, wherever they are.
func TestRead(t *testing.T) {
	t.Parallel()
	var done []string
	does := func(what string) { done = append(done, what) }
	work := func(name string) controlplane.Part {
		return controlplane.PartFunc(func(p *controlplane.Plan) error {
			p.Work(controlplane.Work{Name: name, Start: func(context.Context, *controlplane.Plane) error {
				does("start " + name)
				return nil
			}})
			return nil
		})
	}
	everywhere := controlplane.ServerPartFunc(func(p *controlplane.ServerPlan) error {
		p.EachPlane(func(p *controlplane.Plan) { p.Read(func() error { does("read in each plane"); return nil }) })
		return nil
	})
	s, err := controlplane.New("test").Storage(memory.Store{}).
		With(everywhere, controlplane.Parts{reader{"one", does}, work("two")}, reader{"three", does}).Build()
	if err != nil {
		t.Fatal(err)
	}
	installed := []string{"read in each plane", "install one", "read one", "install three", "read three"}
	if diff := cmp.Diff(installed, done); diff != "" {
		t.Errorf("Build (-want +got):\n%s", diff)
	}
	done = nil
	run(t, s)
	want := append(slices.Clone(installed), "start one", "start two", "start three")
	if diff := cmp.Diff(want, done); diff != "" {
		t.Errorf("a start, with what was read in the place of its part (-want +got):\n%s", diff)
	}
	done = nil
	if _, err := s.Plane(t.Context(), "more", reader{"four", does}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"read in each plane", "install four", "read four", "start four"}, done); diff != "" {
		t.Errorf("a further plane (-want +got):\n%s", diff)
	}
	_, err = s.Plane(t.Context(), "wrong", reader{"bad", does})
	if err == nil || !strings.Contains(err.Error(), `part "bad": what it says is wrong`) {
		t.Errorf("a further plane whose part reads what is wrong: %v", err)
	}
	_, err = controlplane.New("test").Storage(memory.Store{}).With(reader{"bad", does}, reader{"bad too", does}).Build()
	for _, want := range []string{`part "bad": what it says is wrong`, `part "bad too": what it says is wrong`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want all that is wrong at once: %s", err, want)
		}
	}
}
