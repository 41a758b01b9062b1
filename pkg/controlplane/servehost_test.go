package controlplane_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestAnswer: parts find the way to a handler, by host and port.
func TestAnswer(t *testing.T) {
	t.Parallel()
	var plan *controlplane.Plan
	part := controlplane.PartFunc(func(p *controlplane.Plan) error {
		plan = p
		p.ServeHost("hooks.example.com", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.Host + r.URL.Path)) }))
		p.ServeHost("hooks.example.com:8443", http.NotFoundHandler())
		return nil
	})
	if _, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(part).Build(); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"hooks.example.com:443": http.StatusOK, "hooks.example.com:8443": http.StatusNotFound, "hooks.example.com:80": 0} {
		way := plan.HostTransport(host)
		if (way == nil) != (want == 0) {
			t.Errorf("%s: the way is %v", host, way)
		}
		if way == nil {
			continue
		}
		client := http.Client{Transport: way}
		response, err := client.Post("https://"+host+"/x", "", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want {
			t.Errorf("%s: status %d, want %d", host, response.StatusCode, want)
		}
		response.Body.Close()
	}
}

// TestAnswerTwice: one of two handlers would never be asked.
func TestAnswerTwice(t *testing.T) {
	t.Parallel()
	part := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.ServeHost("a.example.com", http.NotFoundHandler())
		p.ServeHost("a.example.com:443", http.NotFoundHandler())
		p.ServeHost("b.example.com", nil)
		return nil
	})
	_, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(part).Build()
	for _, want := range []string{`handler of host "a.example.com:443"`, "already has one with that name", `handler of host "b.example.com:443" is nil`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
