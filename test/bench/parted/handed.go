package main

import (
	"context"
	"errors"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/aggregator"
	"github.com/sailplane-dev/sailplane/pkg/apis"
	"github.com/sailplane-dev/sailplane/pkg/apis/apitest/fruit"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// ownGroup and handedGroup have one object each, of one type: the server's own, and one of
// another server in the process, that requests are handed to.
const (
	ownGroup    = "own.example.com"
	handedGroup = "handed.example.com"
)

func versionOf(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: "v1"}
}

func things(group string) controlplane.Part {
	return apis.NewGroup(versionOf(group), nil, nil, apis.Resource[fruit.Apple, fruit.AppleList]("things"))
}

// handed is a server with both groups.
func handed() (choice, error) {
	admins := authz.Groups{Admins: []string{group}}
	other, err := controlplane.New("handed").Storage(memory.Store{}).With(admins, core.Namespaces{}, things(handedGroup)).Build()
	if err != nil {
		return choice{}, err
	}
	run := controlplane.PartFunc(func(p *controlplane.Plan) error {
		p.Work(controlplane.Work{Name: "other-server", Run: func(ctx context.Context, _ *controlplane.Plane) error { return other.Run(ctx) }})
		return nil
	})
	servers := aggregator.APIServices{Servers: []aggregator.Server{{Name: "bench/handed", Handler: other.Handler()}}}
	return choice{
		parts: controlplane.Parts{admins, things(ownGroup), servers, run}, storage: memory.Store{}, prepare: createThings,
	}, nil
}

// createThings makes both objects, once the other server is known.
func createThings(ctx context.Context, admin *rest.Config, _ string) error {
	client, err := dynamic.NewForConfig(admin)
	if err != nil {
		return err
	}
	for _, group := range []string{ownGroup, handedGroup} {
		thing := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": versionOf(group).String(), "kind": "Apple", "metadata": map[string]any{"name": "a"},
			"spec": map[string]any{"variety": strings.Repeat("x", 1<<10)},
		}}
		all := client.Resource(versionOf(group).WithResource("things")).Namespace(metav1.NamespaceDefault)
		var last error
		err := wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			_, last = all.Create(ctx, thing, metav1.CreateOptions{})
			return last == nil, nil
		})
		if err != nil {
			return errors.Join(err, last)
		}
	}
	return nil
}
