package controlplane_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/namespace/lifecycle"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/authn"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

func TestBuildErrors(t *testing.T) {
	t.Parallel()
	wrap := func(next http.Handler) http.Handler { return next }
	newLifecycle := func() (admission.Interface, error) { return lifecycle.NewLifecycle(nil) }
	cases := map[string]struct {
		reason string
		build  *controlplane.Builder
		want   []string
	}{
		"nothing": {
			reason: "everything that is missing is told at once",
			build:  controlplane.New("").Drain(0),
			want: []string{
				"drain 0s: want a duration above 0, such as 1m0s",
				`the server has no name: pass one to New, such as "apples"`,
				"no storage: call Storage with one, such as memory.Store{}",
			},
		},
		"listen without certificate": {
			reason: "a server that listens must prove itself",
			build:  controlplane.New("x").Listen("127.0.0.1:0").Storage(memory.Store{}),
			want:   []string{"listen: no part provides a serving certificate: add authn.Admin{}"},
		},
		"listen address": {
			reason: "an address without a port cannot be listened at",
			build:  controlplane.New("x").Listen("localhost").Storage(memory.Store{}).With(authn.Admin{}),
			want:   []string{"listen: address localhost: missing port in address: want HOST:PORT, such as 127.0.0.1:6443"},
		},
		"prefix": {
			reason: "keys are paths",
			build:  controlplane.New("x").Prefix("registry/").Storage(memory.Store{}),
			want:   []string{`prefix "registry/": want a path such as "/registry"`},
		},
		"nil everywhere": {
			reason: "what is nil is told before it is called",
			build: controlplane.New("x").Storage(memory.Store{}).With(controlplane.PartFunc(func(p *controlplane.Plan) error {
				p.Serve(nil)
				p.Serve(controlplane.NewAPI("x.example.com", nil, controlplane.APIConfig{}), controlplane.Resource{Name: "xs"})
				p.Work(controlplane.Work{Name: "work"})
				p.Read(nil)
				p.Authenticate("who", nil)
				p.Wrap(controlplane.Innermost, "wrap", nil)
				return nil
			})),
			want: []string{
				"serves a nil API", `group "x.example.com" has no version`, `group "x.example.com": Definitions is missing`,
				`resource "xs.x.example.com": needs a version and a Build function`,
				`work "work": Start, Run and Stop are all nil`, "Read got a nil function",
				`authenticator "who" is nil`, `middleware "wrap" is nil`,
			},
		},
		"resource twice": {
			reason: "two parts cannot serve one resource",
			build:  controlplane.New("x").Storage(memory.Store{}).With(core.ConfigMaps{}, core.ConfigMaps{}),
			want:   []string{`part "core.ConfigMaps": resource "configmaps.": part "core.ConfigMaps" already serves it`},
		},
		"an included part": {
			reason: "its mistakes are those of the part that includes it",
			build: controlplane.New("x").Storage(memory.Store{}).With(controlplane.PartFunc(func(p *controlplane.Plan) error {
				return p.Include(authz.Groups{Admins: []string{""}})
			})),
			want: []string{`part "controlplane.PartFunc": part "authz.Groups": `},
		},
		"group in two parts": {
			reason: "a group's objects have one form in the storage",
			build: controlplane.New("x").Storage(memory.Store{}).With(core.ConfigMaps{}, controlplane.PartFunc(func(p *controlplane.Plan) error {
				p.Serve(controlplane.NewAPI("", []string{"v1"}, controlplane.APIConfig{}))
				return nil
			})),
			want: []string{`part "controlplane.PartFunc": group "": only one of this part and part "core.ConfigMaps" has protobuf methods`},
		},
		"two certificates": {
			reason: "a server has one identity",
			build:  controlplane.New("x").Storage(memory.Store{}).With(authn.Admin{}, authn.Admin{}),
			want:   []string{`part "authn.Admin": serving certificate: part "authn.Admin" already provides one`},
		},
		"admission on an unserved type": {
			reason: "its informer would never sync and every write would wait",
			build:  controlplane.New("x").Storage(memory.Store{}).With(admit.Plugin("lifecycle", newLifecycle)),
			want:   []string{`part "admission lifecycle": admission "lifecycle" watches /v1, Kind=Namespace, which no part serves: add the part that serves it, or remove the plugin`},
		},
		"names": {
			reason: "every mistake of every part is told, not the first one",
			build: controlplane.New("x").Storage(memory.Store{}).With(
				middleware.Wrap("", wrap), middleware.Wrap("id", wrap), middleware.Innermost("id", wrap), middleware.Wrap("nil", nil),
				admit.Validate("", nil), admit.Mutate("nil", nil), authz.Groups{Admins: []string{""}}, nil,
				controlplane.PartFunc(func(*controlplane.Plan) error { return errors.New("broken") })),
			want: []string{
				`part "middleware ": the middleware has no name: give it one, such as "request-id"`,
				`part "middleware id": middleware "id": part "middleware id" already has one with that name`,
				`part "middleware nil": the middleware function is nil`,
				`part "admission ": the admission function has no name: give it one, such as "no-rotten-apples"`,
				`part "admission nil": the admission function is nil`,
				`part "authz.Groups": field Admins: a group name is empty`,
				"a part is nil",
				`part "controlplane.PartFunc": broken`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.build.Build()
			if err == nil {
				t.Fatalf("%s: Build returned no error", tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s: the error lacks %q; it is:\n%v", tc.reason, want, err)
				}
			}
		})
	}
}

func TestServesBuildsAgain(t *testing.T) {
	t.Parallel()
	b := controlplane.New("twice").Storage(memory.Store{}).With(core.Namespaces{}, core.ConfigMaps{})
	for range 2 {
		s, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		run(t, s)
	}
}

// TestInclude lists a part beside one that includes it, before and after it.
func TestInclude(t *testing.T) {
	t.Parallel()
	maps := controlplane.PartFunc(func(p *controlplane.Plan) error { return p.Include(core.ConfigMaps{}) })
	for name, parts := range map[string]controlplane.Parts{
		"alone": {maps}, "listed before": {core.ConfigMaps{}, maps}, "listed after": {maps, core.ConfigMaps{}}, "by two": {maps, maps},
	} {
		s, err := controlplane.New("include").Storage(memory.Store{}).With(core.Namespaces{}, parts).Build()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		run(t, s)
		client := kubernetes.NewForConfigOrDie(s.ClientConfig())
		if _, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGroupVersionsOfResources(t *testing.T) {
	t.Parallel()
	api := controlplane.NewAPI("x.example.com", []string{"v2", "v1"}, controlplane.APIConfig{})
	want := []schema.GroupVersion{{Group: "x.example.com", Version: "v2"}, {Group: "x.example.com", Version: "v1"}}
	if got := api.GroupVersions(); got[0] != want[0] || got[1] != want[1] {
		t.Errorf("GroupVersions() = %v, want %v", got, want)
	}
}
