package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

// TestShots: bodies are what they should be, or an attack would measure a 400.
func TestShots(t *testing.T) {
	t.Parallel()
	const most = 3 << 20 // bytes of a body, more of which no server reads
	for name, a := range attacks() {
		if (a.shots == nil) == (a.raw == nil) {
			t.Errorf("%s: want shots, or more than shots", name)
			continue
		}
		if a.shots == nil {
			continue
		}
		for _, s := range a.shots(target{Accounts: []string{"a", "b"}}) {
			if len(s.body) > most {
				t.Errorf("%s: %s %s has %d bytes", name, s.method, s.path, len(s.body))
			}
			if strings.HasSuffix(s.contentType, "json") && !json.Valid(s.body) {
				t.Errorf("%s: %s %s is no JSON: %.200s", name, s.method, s.path, s.body)
			}
		}
	}
}

func TestDeepDefinition(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	const levels = 300 // more than a length of one byte
	decoded, _, err := protobuf.NewSerializer(scheme, scheme).Decode(deepDefinition(levels), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	crd, ok := decoded.(*apiextensionsv1.CustomResourceDefinition)
	if !ok || crd.Name != "deeps.siege.example.com" || len(crd.Spec.Versions) != 1 {
		t.Fatalf("got %+v", decoded)
	}
	got := 0
	for s := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Not; s != nil; s = s.Not {
		got++
	}
	if got != levels {
		t.Errorf("got %d levels, want %d", got, levels)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	spread := func(slowest time.Duration) []time.Duration {
		all := make([]time.Duration, 100)
		for i := range all {
			all[i] = time.Millisecond
		}
		all[0] = slowest
		return all
	}
	calm := measured{times: times{gets: spread(10 * time.Millisecond), creates: spread(10 * time.Millisecond)}}
	o := options{slower: 3, growth: 1024, percent: 99}
	for name, c := range map[string]struct {
		reason string
		storm  measured
		want   string
	}{
		"as before": {"nothing is slower", calm, "holds"},
		"gets":      {"the slowest of a hundred counts", measured{times: times{gets: spread(31 * time.Millisecond), creates: calm.creates}}, "misses: gets"},
		"creates":   {"creates count for themselves", measured{times: times{gets: calm.gets, creates: spread(31 * time.Millisecond)}}, "misses: creates"},
		"memory":    {"growth is bounded", measured{times: calm.times, growth: 1025}, "misses: memory"},
		"refused":   {"the tenant is honest", measured{times: times{gets: calm.gets, creates: calm.creates, refused: 2}}, "2 of the tenant's requests failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := result{attack: "a", storage: "memory", calm: calm, storm: c.storm}
			if got := r.line(o); !strings.Contains(got, c.want) {
				t.Errorf("%s: got %s, want %q", c.reason, got, c.want)
			}
			if err := (results{r}).missed(o); (err == nil) != (c.want == "holds") {
				t.Errorf("%s: got %v", c.reason, err)
			}
		})
	}
}
