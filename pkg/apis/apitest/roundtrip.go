// Package apitest checks resources in tests of the programs that define them.
package apitest

import (
	"fmt"
	"math/rand"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/randfill"

	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// rounds is how many random objects go each way. Half of all optional fields
// are empty in each, so 200 leave no field of a usual type untried.
const rounds = 200

// RoundTrip checks that the conversions of a group lose nothing. For every
// served version of every resource it converts random objects from the hub to
// the version and back, and from the version to the hub and back, and reports
// a difference as an error of the test with a diff (-sent +got).
//
// fuzz are functions func(*T, randfill.Continue) that fill values of one
// restricted type, such as an enumeration, and replace the default. The random
// objects are the same in every run.
func RoundTrip(t testing.TB, g *apis.Group, fuzz ...any) {
	t.Helper()
	scheme, err := g.API().Scheme()
	if err != nil {
		t.Errorf("round trip: %v", err)
		return
	}
	custom := func(serializer.CodecFactory) []any { return fuzz }
	filler := fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, custom), rand.NewSource(1), serializer.NewCodecFactory(scheme))
	trip := tripper{scheme: scheme, filler: filler}
	hub := g.GroupVersion()
	for _, r := range g.Resources() {
		for _, version := range r.Spokes() {
			spoke := schema.GroupVersion{Group: hub.Group, Version: version}
			for _, leg := range [][2]schema.GroupVersion{{hub, spoke}, {spoke, hub}} {
				if err := trip.there(leg[0].WithKind(r.Kind()), leg[1].WithKind(r.Kind())); err != nil {
					t.Errorf("resource %q: %v", r.Name(), err)
				}
			}
		}
	}
}

type tripper struct {
	scheme *runtime.Scheme
	filler *randfill.Filler
}

// there converts random objects of one kind to another and back.
func (t tripper) there(from, via schema.GroupVersionKind) error {
	for range rounds {
		sent, err := t.scheme.New(from)
		if err != nil {
			return err
		}
		t.filler.Fill(sent)
		sent.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		got, err := t.andBack(sent.DeepCopyObject(), from, via)
		if err != nil {
			return err
		}
		if !equality.Semantic.DeepEqual(sent, got) {
			return fmt.Errorf("%s changed on the way to %s and back (-sent +got):\n%s",
				from.Version, via.Version, cmp.Diff(sent, got, cmp.Exporter(func(reflect.Type) bool { return true })))
		}
	}
	return nil
}

func (t tripper) andBack(obj runtime.Object, from, via schema.GroupVersionKind) (runtime.Object, error) {
	for _, gvk := range []schema.GroupVersionKind{via, from} {
		out, err := t.scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		if err := t.scheme.Convert(obj, out, nil); err != nil {
			return nil, fmt.Errorf("convert %T to %s: %w", obj, gvk.Version, err)
		}
		obj = out
	}
	return obj, nil
}
