package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// TestHandler: a server takes it for an API server, with discovery, documents and an object.
func TestHandler(t *testing.T) {
	const group = "behind0.example.com"
	s, err := controlplane.New("front").Storage(memory.Store{}).With(core.Namespaces{}, aggregator.APIServices{
		Servers: []aggregator.Server{{Name: "default/behind", Handler: handler(group)}},
	}).Build()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-s.Ready()
	client, err := kubernetes.NewForConfig(s.ClientConfig())
	if err != nil {
		t.Fatal(err)
	}
	read := func(path string) (string, error) {
		b, err := client.Discovery().RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		return string(b), err
	}
	for path, want := range map[string]string{
		"/apis/" + group + "/v1/namespaces/default/things/a": `"name":"a"`,
		"/apis":                             group,
		"/openapi/v3":                       "apis/" + group + "/v1",
		"/openapi/v3/apis/" + group + "/v1": group,
	} {
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			got, err := read(path)
			if err == nil && strings.Contains(got, want) {
				break
			}
			if time.Now().After(end) {
				t.Fatal(errors.Join(errors.New(path+" answers "+got), err))
			}
		}
	}
	all, err := discovery.ServerPreferredResources(client.Discovery())
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, list := range all {
		found = found || list.GroupVersion == group+"/v1" && len(list.APIResources) == 1 && list.APIResources[0].Kind == "Thing"
	}
	if !found {
		t.Errorf("discovery has no things: %v", all)
	}
}
