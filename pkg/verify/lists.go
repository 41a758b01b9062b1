package verify

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func listChecks() []resourceCheck {
	return []resourceCheck{
		{"list", "a list has what was created, and a version that is as new", listed},
		{"list-everywhere", "a list of all namespaces has it, too", listedEverywhere},
		{"list-labels", "a list by label has those objects only", listedByLabel},
		{"list-name", "a list by metadata.name has that object only", listedByName},
		{"list-bad-selector", "a selector that is none is 400", badSelector},
		{"list-pages", "pages have every object once, and are of one version", pages},
		{"list-bad-continue", "a continue token that is none is 400", badContinue},
		{"list-bad-version", "a version that is none is 400", badVersion},
		{"list-future", "a list of a version that is not there yet is refused in time", futureVersion},
		{"table", "a list is a table for who asks for one", table},
		{"metadata-only", "a list is metadata for who asks for that", metadataOnly},
		{"protobuf", "who asks for protobuf gets protobuf, or 406, and JSON if that is fine, too", protobuf},
		{"accept-unknown", "an unknown form of an answer is 406", acceptUnknown},
		{"delete-collection", "a collection is deleted by label", collectionDeleted},
	}
}

// list lists the resource in the namespace.
func (r *resource) list(ctx context.Context, query url.Values) (*answer, *unstructured.UnstructuredList, error) {
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(), query: query})
	if err != nil {
		return nil, nil, err
	}
	list, err := a.list()
	return a, list, err
}

// list reads the answer as a list.
func (a *answer) list() (*unstructured.UnstructuredList, error) {
	if err := a.is(http.StatusOK); err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{}
	if list.UnmarshalJSON(a.body) != nil {
		return nil, a.wrong("a list")
	}
	return list, nil
}

// names are those of a list.
func names(l *unstructured.UnstructuredList) map[string]int {
	all := map[string]int{}
	for i := range l.Items {
		all[l.Items[i].GetName()]++
	}
	return all
}

// seen is an object to look at, and the resource in its namespace: a new one, or one of those that
// are there if nobody can create them.
func (r *resource) seen(ctx context.Context) (*resource, *unstructured.Unstructured, error) {
	if err := r.can("list"); err != nil {
		return nil, nil, err
	}
	if slices.Contains(r.verbs, "create") {
		if err := r.can("create"); err != nil {
			return nil, nil, err
		}
		made, err := r.made(ctx)
		return r, made, err
	}
	a, err := r.do(ctx, ask{
		method: http.MethodGet, path: prefix(r.gvr.GroupVersion()) + "/" + r.gvr.Resource, query: url.Values{"limit": {"1"}},
	})
	if err != nil {
		return nil, nil, err
	}
	list, err := a.list()
	if err != nil {
		return nil, nil, err
	}
	if len(list.Items) == 0 {
		return nil, nil, skip("it has no verb create, and there are no objects")
	}
	there := *r
	there.namespace = list.Items[0].GetNamespace()
	return &there, &list.Items[0], nil
}

func listed(ctx context.Context, r *resource) error {
	r, made, err := r.seen(ctx)
	if err != nil {
		return err
	}
	a, list, err := r.list(ctx, nil)
	if err != nil {
		return err
	}
	if names(list)[made.GetName()] != 1 || list.GetKind() == "" || list.GetAPIVersion() == "" {
		return a.wrong("a kind, an apiVersion, and %s once", made.GetName())
	}
	if list.GetResourceVersion() == "" && slices.Contains(r.verbs, "watch") {
		return a.wrong("a resourceVersion, which a watch begins at")
	}
	own, err1 := strconv.ParseUint(made.GetResourceVersion(), 10, 64)
	all, err2 := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	if err1 == nil && err2 == nil && all < own {
		return &mismatch{a.sent, "resourceVersion " + list.GetResourceVersion(), made.GetResourceVersion() + " or more"}
	}
	return nil
}

func listedEverywhere(ctx context.Context, r *resource) error {
	r, made, err := r.seen(ctx)
	if err != nil {
		return err
	}
	a, err := r.do(ctx, ask{
		method: http.MethodGet, path: prefix(r.gvr.GroupVersion()) + "/" + r.gvr.Resource,
		query: url.Values{"fieldSelector": {"metadata.namespace=" + r.namespace}},
	})
	if err != nil {
		return err
	}
	list, err := a.list()
	if err != nil {
		return err
	}
	if names(list)[made.GetName()] != 1 {
		return a.wrong("%s", made.GetName())
	}
	for i := range list.Items {
		if list.Items[i].GetNamespace() != r.namespace {
			return a.wrong("objects of namespace %s only", r.namespace)
		}
	}
	return nil
}

func listedByLabel(ctx context.Context, r *resource) error {
	if err := r.can("list", "create"); err != nil {
		return err
	}
	red, err := r.made(ctx, labelled("color", "red"))
	if err != nil {
		return err
	}
	if _, err := r.made(ctx, labelled("color", "blue")); err != nil {
		return err
	}
	return r.selects(ctx, url.Values{"labelSelector": {"color in (red),color!=blue"}}, red.GetName())
}

func listedByName(ctx context.Context, r *resource) error {
	_, _, err := r.seen(ctx)
	if err != nil {
		return err
	}
	r, made, err := r.seen(ctx)
	if err != nil {
		return err
	}
	return r.selects(ctx, url.Values{"fieldSelector": {"metadata.name=" + made.GetName()}}, made.GetName())
}

func (r *resource) selects(ctx context.Context, query url.Values, only string) error {
	a, list, err := r.list(ctx, query)
	if err != nil {
		return err
	}
	if len(list.Items) != 1 || list.Items[0].GetName() != only {
		return &mismatch{a.sent, fmt.Sprint(names(list)), only + " only"}
	}
	return nil
}

func badSelector(ctx context.Context, r *resource) error {
	if err := r.can("list"); err != nil {
		return err
	}
	for _, query := range []url.Values{{"labelSelector": {"a==b==c"}}, {"fieldSelector": {"spec.verify.unknown=a"}}} {
		a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(), query: query})
		if err != nil {
			return err
		}
		if err := a.refuses(metav1.StatusReasonBadRequest, http.StatusBadRequest); err != nil {
			return err
		}
	}
	return nil
}

func pages(ctx context.Context, r *resource) error {
	if err := r.can("list", "create"); err != nil {
		return err
	}
	want := map[string]bool{}
	for range 3 {
		made, err := r.made(ctx, labelled("verify", "pages"))
		if err != nil {
			return err
		}
		want[made.GetName()] = true
	}
	query := url.Values{"labelSelector": {"verify=pages"}, "limit": {"2"}}
	version := ""
	for {
		a, list, err := r.list(ctx, query)
		if err != nil {
			return err
		}
		if len(list.Items) > 2 {
			return a.wrong("two objects at most")
		}
		if version != "" && list.GetResourceVersion() != version {
			return &mismatch{a.sent, "resourceVersion " + list.GetResourceVersion(), "that of the first page, " + version}
		}
		version = list.GetResourceVersion()
		for name := range names(list) {
			if !want[name] {
				return a.wrong("no object of a page before")
			}
			delete(want, name)
		}
		if list.GetContinue() == "" {
			break
		}
		query.Set("continue", list.GetContinue())
	}
	if len(want) > 0 {
		return &mismatch{"GET of all pages", fmt.Sprintf("no %v", want), "all objects"}
	}
	return nil
}

// versioned skips resources whose lists have no version: they have no pages, and no past.
func (r *resource) versioned(ctx context.Context) error {
	if err := r.can("list"); err != nil {
		return err
	}
	_, list, err := r.list(ctx, nil)
	if err == nil && list.GetResourceVersion() == "" {
		return skip("its lists have no version")
	}
	return err
}

func badContinue(ctx context.Context, r *resource) error {
	if err := r.versioned(ctx); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(), query: url.Values{"limit": {"1"}, "continue": {"verify"}}})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonBadRequest, http.StatusBadRequest)
}

func badVersion(ctx context.Context, r *resource) error {
	if err := r.can("list"); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(), query: url.Values{"resourceVersion": {"verify"}}})
	if err != nil {
		return err
	}
	return a.refuses("", http.StatusBadRequest)
}

func futureVersion(ctx context.Context, r *resource) error {
	if err := r.versioned(ctx); err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(), query: url.Values{
		"resourceVersion": {"1000000000000"}, "resourceVersionMatch": {"NotOlderThan"},
	}})
	if err != nil {
		return err
	}
	return a.refuses(metav1.StatusReasonTimeout, http.StatusGatewayTimeout)
}

// as lists the resource in a form.
func (r *resource) as(ctx context.Context, accept string) (*answer, error) {
	return r.do(ctx, ask{method: http.MethodGet, path: r.path(), header: map[string]string{"Accept": accept}})
}

func table(ctx context.Context, r *resource) error {
	r, made, err := r.seen(ctx)
	if err != nil {
		return err
	}
	a, err := r.as(ctx, "application/json;as=Table;v=v1;g=meta.k8s.io")
	if err != nil {
		return err
	}
	var t metav1.Table
	if a.code != http.StatusOK || json.Unmarshal(a.body, &t) != nil || t.Kind != "Table" || len(t.ColumnDefinitions) == 0 {
		return a.wrong("200 and a Table with columns")
	}
	for _, row := range t.Rows {
		if len(row.Cells) != len(t.ColumnDefinitions) {
			return a.wrong("rows with %d cells", len(t.ColumnDefinitions))
		}
		for _, cell := range row.Cells {
			if cell == made.GetName() {
				return nil
			}
		}
	}
	return a.wrong("a row with %s", made.GetName())
}

func metadataOnly(ctx context.Context, r *resource) error {
	r, made, err := r.seen(ctx)
	if err != nil {
		return err
	}
	a, err := r.as(ctx, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
	if err != nil {
		return err
	}
	list, err := a.list()
	if err != nil {
		return err
	}
	if list.GetKind() != "PartialObjectMetadataList" || names(list)[made.GetName()] != 1 {
		return a.wrong("a PartialObjectMetadataList with %s", made.GetName())
	}
	for i := range list.Items {
		if _, ok := list.Items[i].Object["spec"]; ok {
			return a.wrong("no spec")
		}
	}
	return nil
}

func protobuf(ctx context.Context, r *resource) error {
	if err := r.can("list"); err != nil {
		return err
	}
	const want = "application/vnd.kubernetes.protobuf"
	a, err := r.as(ctx, want)
	if err != nil {
		return err
	}
	if a.code == http.StatusNotAcceptable {
		// Most clients of Kubernetes ask for both, and take what comes.
		if a, err = r.as(ctx, want+","+asJSON); err != nil {
			return err
		}
		_, err = a.list()
		return err
	}
	if a.code != http.StatusOK || !strings.HasPrefix(a.header.Get("Content-Type"), want) || !strings.HasPrefix(string(a.body), "k8s\x00") {
		return &mismatch{a.sent, fmt.Sprintf("%d, Content-Type: %s", a.code, a.header.Get("Content-Type")), "200 in protobuf, or 406"}
	}
	return nil
}

func acceptUnknown(ctx context.Context, r *resource) error {
	if err := r.can("list"); err != nil {
		return err
	}
	a, err := r.as(ctx, "application/xml")
	if err != nil {
		return err
	}
	return a.is(http.StatusNotAcceptable)
}

func collectionDeleted(ctx context.Context, r *resource) error {
	if err := r.can("list", "create", "deletecollection"); err != nil {
		return err
	}
	goes, err := r.unheld(ctx, labelled("verify", "goes"))
	if err != nil {
		return err
	}
	stays, err := r.made(ctx, labelled("verify", "stays"))
	if err != nil {
		return err
	}
	a, err := r.do(ctx, ask{method: http.MethodDelete, path: r.path(), query: url.Values{
		"labelSelector": {"verify=goes"}, "propagationPolicy": {"Background"},
	}})
	if err != nil {
		return err
	}
	if err := a.is(http.StatusOK, http.StatusAccepted); err != nil {
		return err
	}
	_, list, err := r.list(ctx, nil)
	if err != nil {
		return err
	}
	if all := names(list); all[goes.GetName()] != 0 || all[stays.GetName()] != 1 {
		return &mismatch{a.sent, fmt.Sprint(all), stays.GetName() + ", and not " + goes.GetName()}
	}
	return nil
}
