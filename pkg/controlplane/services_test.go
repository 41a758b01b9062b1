package controlplane_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// knows resolves one Service, by its name.
type knows string

// ResolveEndpoint implements controlplane.ServiceResolver.
func (k knows) ResolveEndpoint(namespace, name string, _ int32) (*url.URL, error) {
	if namespace+"/"+name != string(k) {
		return nil, &controlplane.ServiceError{Reason: "ServiceNotFound", Message: "not " + name}
	}
	return &url.URL{Scheme: "https", Host: "by-" + name + ":443"}, nil
}

// planOf is the plan that a part declares.
func planOf(t *testing.T, declare func(*controlplane.Plan)) (*controlplane.Plan, error) {
	t.Helper()
	var plan *controlplane.Plan
	part := controlplane.PartFunc(func(p *controlplane.Plan) error {
		plan = p
		declare(p)
		return nil
	})
	_, err := controlplane.New(t.Name()).Storage(memory.Store{}).With(part).Build()
	return plan, err
}

// TestServices: an address that was named is the first choice, then resolvers in their order.
func TestServices(t *testing.T) {
	t.Parallel()
	plan, err := planOf(t, func(p *controlplane.Plan) {
		p.ResolveServices("first", knows("ns/a"))
		p.ResolveServices("second", knows("ns/b"))
		p.LocateService("ns/b", "[::1]:9443")
		p.LocateService("ns/b:8443", "Host.example.com:1")
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reason, service string
		port            int32
		want            string
	}{
		"resolved": {"a resolver knows it", "a", 443, "by-a:443"},
		"located":  {"the address is more than what a resolver says", "b", 443, "[::1]:9443"},
		"port":     {"that of a port is more than that of the Service", "b", 8443, "Host.example.com:1"},
		"unknown":  {"nobody knows it", "c", 443, ""},
	} {
		u, err := plan.ResolveEndpoint("ns", c.service, c.port)
		var unresolved *controlplane.ServiceError
		if c.want == "" {
			if !errors.As(err, &unresolved) || unresolved.Reason != "ServiceNotFound" {
				t.Errorf("%s: %s: got %v", name, c.reason, err)
			}
		} else if err != nil || u.Host != c.want {
			t.Errorf("%s: %s: got %v, %v, want %s", name, c.reason, u, err, c.want)
		}
	}
}

// TestNoServices: where nothing finds Services, the error says what to add.
func TestNoServices(t *testing.T) {
	t.Parallel()
	plan, err := planOf(t, func(*controlplane.Plan) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.ResolveEndpoint("ns", "a", 443); err == nil || !strings.Contains(err.Error(), `service "ns/a"`) ||
		!strings.Contains(err.Error(), "services.Addresses") {
		t.Errorf("got %v", err)
	}
}

// TestWrongServices: what cannot be a Service or an address is an error of Build.
func TestWrongServices(t *testing.T) {
	t.Parallel()
	wrong := map[string]string{
		"a": "127.0.0.1:1", "ns/": "127.0.0.1:1", "ns/a/b": "127.0.0.1:1", "ns/a:http": "127.0.0.1:1", "ns/a:0": "127.0.0.1:1",
		"ns/b": "127.0.0.1", "ns/c": "https://example.com:443", "ns/d": "127.0.0.1:70000", "ns/e": ":443",
	}
	_, err := planOf(t, func(p *controlplane.Plan) {
		for service, address := range wrong {
			p.LocateService(service, address)
		}
		p.LocateService("ns/twice", "127.0.0.1:1")
		p.LocateService("ns/twice", "127.0.0.1:2")
		p.ResolveServices("none", nil)
	})
	if err == nil {
		t.Fatal("no error")
	}
	for service := range wrong {
		if !strings.Contains(err.Error(), `service "`+service+`"`) {
			t.Errorf("%q to %q is accepted", service, wrong[service])
		}
	}
	for _, want := range []string{`address of service "ns/twice": part "controlplane.PartFunc" already has one`, `resolver of services "none" is nil`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
