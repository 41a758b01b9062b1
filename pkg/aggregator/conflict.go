package aggregator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/retry"
	"github.com/sailplane-dev/sailplane/pkg/openapi"
)

// Conflicting is a condition of the APIServices and the CRDs of a group version that several
// claim. It says who answers. An APIService with a Service wins over what the plane serves
// itself, as in Kubernetes. Among the servers that an operator names, the one wins that had
// the APIService first; it stays so over restarts.
const Conflicting apiregistrationv1.APIServiceConditionType = "Conflicting"

// conflict is a group version that several claim.
type conflict struct {
	winner  string
	losers  []string
	visible bool // somebody wrote an object that has no effect
}

func (c conflict) String() string {
	return fmt.Sprintf("%s answers, and not %s, which has it, too", c.winner, strings.Join(c.losers, ", and not "))
}

const (
	ownResources   = "a resource of this server"
	ownDefinitions = "a CustomResourceDefinition"
)

// conflicts are what several claim now.
func (r *reporter) conflicts() map[schema.GroupVersion]conflict {
	all := map[schema.GroupVersion]conflict{}
	add := func(gv schema.GroupVersion, winner, loser string, visible bool) {
		c := all[gv]
		c.winner, c.losers, c.visible = winner, append(c.losers, loser), c.visible || visible
		all[gv] = c
	}
	local := r.local()
	routes := *r.remotes.routes.Load()
	for gv, one := range routes {
		if what := local[gv]; what != "" {
			add(gv, "server "+one.server.String(), what, true)
		}
	}
	for _, g := range r.remotes.given {
		for gv := range r.remotes.foundBy(g) {
			switch one := routes[gv]; {
			case one != nil && one.server.given != g:
				add(gv, "server "+one.server.String(), "server "+g.Name, true)
			case one == nil && local[gv] != "":
				add(gv, local[gv], "server "+g.Name, false)
			}
		}
	}
	return all
}

// local is what the plane serves itself, by what.
func (r *reporter) local() map[schema.GroupVersion]string {
	all := map[schema.GroupVersion]string{}
	for _, d := range localOnly(r.plane.Dynamic()) {
		for _, gv := range d.GroupVersions() {
			all[schema.GroupVersion{Group: gv.Group, Version: gv.Version}] = ownDefinitions
		}
	}
	for _, gv := range r.plane.GroupVersions() {
		all[schema.GroupVersion{Group: gv.Group, Version: gv.Version}] = ownResources
	}
	return all
}

// tellConflicts tells of the conflicts that there are now, and that others are over.
func (r *reporter) tellConflicts(ctx context.Context) error {
	now := r.conflicts()
	before := r.told.Swap(&now)
	var errs []error
	definitions := false
	for gv, c := range now {
		was, known := (*before)[gv]
		if known && was.String() == c.String() || !c.visible {
			continue
		}
		r.queue.Add(nameOf(gv))
		definitions = definitions || slices.Contains(c.losers, ownDefinitions)
		errs = append(errs, r.record(ctx, gv, c))
	}
	for gv, was := range *before {
		if _, still := now[gv]; !still {
			r.queue.Add(nameOf(gv))
			definitions = definitions || slices.Contains(was.losers, ownDefinitions)
		}
	}
	if definitions {
		errs = append(errs, r.markDefinitions(ctx, now))
	}
	err := errors.Join(errs...)
	if err != nil {
		r.told.Store(before) // tell them again
	}
	return err
}

// record makes an event of a conflict, where the plane serves events.
func (r *reporter) record(ctx context.Context, gv schema.GroupVersion, c conflict) error {
	s, err := r.remotes.lister.Get(nameOf(gv))
	if err != nil || !r.publisher.serves("Event") {
		return retry.UnlessGone(err)
	}
	client, err := ownClient(r.plane)
	if err != nil {
		return err
	}
	now := metav1.NewTime(time.Now())
	_, err = client.CoreV1().Events(metav1.NamespaceDefault).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: s.Name + "." + openapi.Digest(string(s.UID), c.String())[:16]},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: apiregistrationv1.SchemeGroupVersion.String(), Kind: "APIService", Name: s.Name, UID: s.UID,
		},
		Type: corev1.EventTypeWarning, Reason: string(Conflicting), Message: c.String(),
		Source: corev1.EventSource{Component: "aggregator"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// markDefinitions sets condition Conflicting of CRDs, and removes it from others.
func (r *reporter) markDefinitions(ctx context.Context, now map[schema.GroupVersion]conflict) error {
	client, err := dynamic.NewForConfig(asAggregator(r.plane.Config()))
	if err != nil {
		return err
	}
	crds := client.Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	all, err := crds.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for i := range all.Items {
		crd := &all.Items[i]
		if !mark(crd, now) {
			continue
		}
		_, err := crds.UpdateStatus(ctx, crd, metav1.UpdateOptions{})
		errs = append(errs, retry.UnlessGone(err))
	}
	return errors.Join(errs...)
}

// mark sets the condition of a CRD to what it has to be, and tells whether that is new.
func mark(crd *unstructured.Unstructured, now map[schema.GroupVersion]conflict) bool {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	message := ""
	for _, v := range versions {
		v, _ := v.(map[string]any)
		name, _ := v["name"].(string)
		if c, ok := now[schema.GroupVersion{Group: group, Version: name}]; ok && v["served"] == true && c.winner != ownDefinitions {
			message += fmt.Sprintf("%s/%s: %s. ", group, name, c)
		}
	}
	message = strings.TrimSpace(message)
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	of := func(c any) bool {
		fields, _ := c.(map[string]any)
		return fields["type"] == string(Conflicting)
	}
	at := slices.IndexFunc(conditions, of)
	switch {
	case message == "" && at < 0:
		return false
	case at >= 0:
		if c, _ := conditions[at].(map[string]any); c["message"] == message {
			return false
		}
		conditions = slices.DeleteFunc(conditions, of)
	}
	if message != "" {
		conditions = append(conditions, map[string]any{
			"type": string(Conflicting), "status": "True", "reason": "ServedElsewhere", "message": message,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
		})
	}
	return unstructured.SetNestedSlice(crd.Object, conditions, "status", "conditions") == nil
}

// servers are how the servers are now.
func (r *reporter) servers() []controlplane.AggregatedServer {
	byServer := map[*server]*controlplane.AggregatedServer{}
	for s := range r.remotes.all() {
		now := s.state.Load()
		one := &controlplane.AggregatedServer{
			Name: s.String(), Address: s.address(), Since: now.since, Latency: now.latency, Missing: map[string]string{},
		}
		if now.err != nil {
			one.Problem = now.err.Error()
		}
		byServer[s] = one
	}
	for gv, route := range *r.remotes.routes.Load() {
		one := byServer[route.server]
		if one == nil {
			continue // it is new
		}
		one.Groups = append(one.Groups, gv.String())
		if err := route.server.state.Load().failed[gv]; err != nil && one.Problem == "" {
			one.Missing[gv.String()] = err.Error()
		}
	}
	for gv, c := range *r.told.Load() {
		for _, one := range byServer {
			if name := "server " + one.Name; c.winner == name || slices.Contains(c.losers, name) {
				one.Conflicts = append(one.Conflicts, fmt.Sprintf("%s: %s", gv, c))
			}
		}
	}
	var all []controlplane.AggregatedServer
	for _, one := range byServer {
		slices.Sort(one.Groups)
		slices.Sort(one.Conflicts)
		all = append(all, *one)
	}
	slices.SortFunc(all, func(a, b controlplane.AggregatedServer) int {
		return strings.Compare(a.Name+" "+a.Address, b.Name+" "+b.Address)
	})
	return all
}
