package authz_test

import (
	"context"
	"encoding/base64"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/auditing"
	"github.com/sailplane-dev/sailplane/pkg/authz"
	"github.com/sailplane-dev/sailplane/pkg/builtin/authorization"
	"github.com/sailplane-dev/sailplane/pkg/builtin/core"
	"github.com/sailplane-dev/sailplane/pkg/builtin/rbac"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/crd"
	"github.com/sailplane-dev/sailplane/pkg/middleware"
	"github.com/sailplane-dev/sailplane/pkg/storage/etcd"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

var gadgetsResource = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}

// filtered runs a server that filters lists of ConfigMaps, Namespaces and gadgets.
func filtered(t *testing.T, d controlplane.Storage, parts ...controlplane.Part) *rest.Config {
	t.Helper()
	config, _ := run(t, d, append([]controlplane.Part{
		authz.RBAC{},
		rbac.All(), authorization.All(),
		core.Namespaces{},
		core.ConfigMaps{},
		core.Secrets{},
		crd.Definitions{FS: fstest.MapFS{"gadgets.yaml": {Data: []byte(gadgets)}}},
		authz.FilteredLists{Resources: []schema.GroupResource{
			{Resource: "configmaps"}, {Resource: "namespaces"}, gadgetsResource.GroupResource(),
		}},
	}, parts...)...)
	return config
}

// give lets alice get objects of a namespace by name. The resource is
// "GROUP/RESOURCE".
func give(t *testing.T, admin kubernetes.Interface, namespace, resource string, objects ...string) {
	t.Helper()
	group, resource, _ := strings.Cut(resource, "/")
	name := metav1.ObjectMeta{Namespace: namespace, Name: resource + "-" + objects[0]}
	role := &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{{
		Verbs: []string{"get"}, APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: objects,
	}}}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: name, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "alice"}},
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitGet(t, admin, authorizationv1.ResourceAttributes{Group: group, Resource: resource, Namespace: namespace, Name: objects[0]}, true)
}

// awaitGet waits until the authorizer knows whether alice may get an object.
func awaitGet(t *testing.T, admin kubernetes.Interface, object authorizationv1.ResourceAttributes, allowed bool) {
	t.Helper()
	object.Verb = "get"
	until(t, "alice may get "+object.Name, func() bool {
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: "alice", ResourceAttributes: &object},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed == allowed
	})
}

// fill creates ConfigMaps; label half is "yes" for every second one.
func fill(t *testing.T, admin kubernetes.Interface, namespace string, objects ...string) {
	t.Helper()
	for i, name := range objects {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"half": []string{"yes", "no"}[i%2]}}}
		if _, err := admin.CoreV1().ConfigMaps(namespace).Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func addNamespace(t *testing.T, admin kubernetes.Interface, name string) {
	t.Helper()
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

var letters = strings.Split("abcdefghij", "")

func TestFilteredLists(t *testing.T) {
	for name, d := range map[string]controlplane.Storage{"memory": memory.Store{}, "etcd": etcd.Embedded{Dir: t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			config := filtered(t, d)
			admin := as(t, config, "")
			addNamespace(t, admin, "shop")
			fill(t, admin, "default", append(letters, "k")...)
			fill(t, admin, "shop", "b", "e", "x", "z")
			give(t, admin, "default", "/configmaps", "b", "e", "j")
			give(t, admin, "shop", "/configmaps", "x")
			alice := as(t, config, "alice")
			all, err := admin.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(all.Items) != 15 {
				t.Fatalf("the administrator lists everything: %d, %v", len(all.Items), err)
			}
			until(t, "the cache has everything", func() bool {
				cached, err := admin.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
				return err == nil && len(cached.Items) == len(all.Items)
			})
			for name, tc := range map[string]struct {
				reason, namespace string
				options           metav1.ListOptions
				want              [][]string // by page
			}{
				"namespace":     {"the objects that may be got", "default", metav1.ListOptions{}, [][]string{{"b", "e", "j"}}},
				"plane":         {"in each namespace those of that one", "", metav1.ListOptions{}, [][]string{{"b", "e", "j", "x"}}},
				"cache":         {"from the cache too", "default", metav1.ListOptions{ResourceVersion: "0"}, [][]string{{"b", "e", "j"}}},
				"then":          {"and of an earlier moment", "default", metav1.ListOptions{ResourceVersion: all.ResourceVersion, ResourceVersionMatch: "Exact"}, [][]string{{"b", "e", "j"}}},
				"label":         {"selectors still select", "default", metav1.ListOptions{LabelSelector: "half=yes"}, [][]string{{"e"}}},
				"name":          {"also one by name", "default", metav1.ListOptions{FieldSelector: "metadata.name=e"}, [][]string{{"e"}}},
				"other":         {"one of the others is as one that does not exist", "default", metav1.ListOptions{FieldSelector: "metadata.name=a"}, [][]string{nil}},
				"absent":        {"one of the others is as one that does not exist", "default", metav1.ListOptions{FieldSelector: "metadata.name=zzz"}, [][]string{nil}},
				"by namespace":  {"also a namespace", "", metav1.ListOptions{FieldSelector: "metadata.namespace=shop"}, [][]string{{"x"}}},
				"pages of one":  {"each object on a page, and no page after them", "", metav1.ListOptions{Limit: 1}, [][]string{{"b"}, {"e"}, {"j"}, {"x"}}},
				"pages of two":  {"the last page is not full", "default", metav1.ListOptions{Limit: 2}, [][]string{{"b", "e"}, {"j"}}},
				"one page":      {"nothing tells that others follow", "shop", metav1.ListOptions{Limit: 1}, [][]string{{"x"}}},
				"page of three": {"nothing tells that others follow", "default", metav1.ListOptions{Limit: 3}, [][]string{{"b", "e", "j"}}},
				"pages, label":  {"selectors select on pages", "default", metav1.ListOptions{Limit: 1, LabelSelector: "half=no"}, [][]string{{"b"}, {"j"}}},
			} {
				t.Run(name, func(t *testing.T) {
					got, version := pages(t, alice, tc.namespace, tc.options)
					if diff := cmp.Diff(tc.want, got); diff != "" {
						t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
					}
					if version != all.ResourceVersion && name != "cache" {
						t.Errorf("resource version %s, the administrator's is %s", version, all.ResourceVersion)
					}
				})
			}
		})
	}
}

// pages are the names on each page of a list, and its resource version.
func pages(t *testing.T, client kubernetes.Interface, namespace string, options metav1.ListOptions) (all [][]string, version string) {
	t.Helper()
	for {
		page, err := client.CoreV1().ConfigMaps(namespace).List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		if page.RemainingItemCount != nil {
			t.Errorf("%d items remain: that is not to be told", *page.RemainingItemCount)
		}
		var names []string
		for _, m := range page.Items {
			names = append(names, m.Name)
		}
		all = append(all, names)
		if page.Continue == "" {
			return all, page.ResourceVersion
		}
		if token, err := base64.RawURLEncoding.DecodeString(page.Continue); err != nil || !strings.Contains(string(token), names[len(names)-1]+`\u0000"`) {
			t.Errorf("the continuation names another object than the last of the page: %s, %v", token, err)
		}
		options.Continue, options.ResourceVersion, options.ResourceVersionMatch = page.Continue, "", ""
	}
}

// TestFilteredListsRefuse has what stays refused.
func TestFilteredListsRefuse(t *testing.T) {
	config := filtered(t, memory.Store{})
	admin, alice, stranger := as(t, config, ""), as(t, config, "alice"), as(t, config, "stranger")
	addNamespace(t, admin, "shop")
	fill(t, admin, "default", letters...)
	give(t, admin, "default", "/configmaps", "b")
	give(t, admin, "default", "/secrets", "b")
	ctx := t.Context()
	for name, tc := range map[string]struct {
		reason string
		do     func() error
	}{
		"no rule": {"a stranger may get none", func() error {
			_, err := stranger.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return err
		}},
		"no rule to watch": {"a stranger may get none", func() error {
			_, err := stranger.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{})
			return err
		}},
		"other namespace": {"the rule is for another namespace", func() error {
			_, err := alice.CoreV1().ConfigMaps("shop").List(ctx, metav1.ListOptions{})
			return err
		}},
		"other resource": {"it is off by default", func() error {
			_, err := alice.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{})
			return err
		}},
		"delete": {"a collection is not listed to be deleted", func() error {
			return alice.CoreV1().ConfigMaps("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
		"get": {"what is not listed may not be got", func() error {
			_, err := alice.CoreV1().ConfigMaps("default").Get(ctx, "a", metav1.GetOptions{})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := tc.do(); !apierrors.IsForbidden(err) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
	if got, _ := pages(t, stranger, "", metav1.ListOptions{}); len(got) != 1 || got[0] != nil {
		t.Errorf("a stranger lists in the whole plane: %v", got)
	}
	review, err := alice.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "list", Resource: "configmaps", Namespace: "default",
		}},
	}, metav1.CreateOptions{})
	if err == nil && review.Status.Allowed {
		t.Error("a review says that the whole list is allowed")
	}
}

// TestFilteredListsOfOthers has lists that no store of the plane answers.
func TestFilteredListsOfOthers(t *testing.T) {
	mine := middleware.Innermost("other server", func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/namespaces/default/configmaps" {
				next.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Length", "9999")
			w.Header().Set("X-Others", "hidden")
			_, _ = io.WriteString(w, "hidden")
			http.NewResponseController(w).Flush() //nolint:errcheck // it is refused
		})
	})
	config := filtered(t, memory.Store{}, mine)
	admin := as(t, config, "")
	give(t, admin, "default", "/configmaps", "b")
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "alice"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for _, query := range []string{"", "?watch=true"} {
		response, err := client.Get(config.Host + "/api/v1/namespaces/default/configmaps" + query)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusForbidden || strings.Contains(string(body), "hidden") || response.Header.Get("X-Others") != "" {
			t.Errorf("%s: an answer that was not filtered: %d %v %s", query, response.StatusCode, response.Header, body)
		}
	}
}

// TestFilteredForms lists in the forms that clients ask for.
func TestFilteredForms(t *testing.T) {
	config := filtered(t, memory.Store{})
	admin := as(t, config, "")
	fill(t, admin, "default", letters...)
	give(t, admin, "default", "/configmaps", "b", "e")
	give(t, admin, "default", "example.com/gadgets", "c", "d")
	give(t, admin, "default", "/namespaces", "default")
	fillGadgets(t, config)
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = "alice"
	ctx := t.Context()
	for name, tc := range map[string]struct {
		reason string
		list   func() (runtime.Object, error)
		want   []string
	}{
		"table": {"as kubectl lists", func() (runtime.Object, error) {
			client := as(t, config, "alice").CoreV1().RESTClient()
			body, err := client.Get().Namespace("default").Resource("configmaps").
				SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
			table := &unstructured.Unstructured{}
			if err == nil {
				err = table.UnmarshalJSON(body)
			}
			rows := &unstructured.UnstructuredList{}
			cells, _, _ := unstructured.NestedSlice(table.Object, "rows")
			for _, c := range cells {
				object, _, _ := unstructured.NestedMap(c.(map[string]any), "object")
				rows.Items = append(rows.Items, unstructured.Unstructured{Object: object})
			}
			return rows, err
		}, []string{"b", "e"}},
		"metadata": {"as controllers list", func() (runtime.Object, error) {
			client, err := metadata.NewForConfig(config)
			if err != nil {
				return nil, err
			}
			return client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default").List(ctx, metav1.ListOptions{})
		}, []string{"b", "e"}},
		"protobuf": {"as built-in clients list", func() (runtime.Object, error) {
			c := rest.CopyConfig(config)
			c.ContentType = runtime.ContentTypeProtobuf
			return kubernetes.NewForConfigOrDie(c).CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
		}, []string{"b", "e"}},
		"custom": {"custom resources", func() (runtime.Object, error) {
			return dynamic.NewForConfigOrDie(config).Resource(gadgetsResource).Namespace("default").List(ctx, metav1.ListOptions{})
		}, []string{"c", "d"}},
		"namespaces": {"a namespace is asked about as itself", func() (runtime.Object, error) {
			return as(t, config, "alice").CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
		}, []string{"default"}},
	} {
		t.Run(name, func(t *testing.T) {
			list, err := tc.list()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names(t, list)); diff != "" {
				t.Errorf("%s (-want, +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestFilteredAudit finds the mark in the log.
func TestFilteredAudit(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit.log")
	config := filtered(t, memory.Store{}, auditing.Log{Path: file, Mode: auditing.Blocking, Policy: &auditv1.Policy{
		Rules: []auditv1.PolicyRule{{Level: auditv1.LevelMetadata, Verbs: []string{"list"}, Users: []string{"system:apiserver"}}},
	}})
	admin := as(t, config, "")
	give(t, admin, "default", "/configmaps", "b")
	pages(t, as(t, config, "alice"), "default", metav1.ListOptions{})
	pages(t, admin, "default", metav1.ListOptions{})
	until(t, "the log has the list", func() bool {
		log, err := os.ReadFile(file)
		return err == nil && strings.Count(string(log), `"authorization.sailplane.dev/filtered":"true"`) == 1
	})
}

func TestFilteredListsAreNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, want string
		resources    []schema.GroupResource
	}{
		"none":    {"it is off by default", "field Resources: is empty", nil},
		"no name": {"a group is not a resource", "a resource has no name", []schema.GroupResource{{Group: "example.com"}}},
		"twice":   {"it would not matter, but is a mistake", "configmaps", []schema.GroupResource{{Resource: "configmaps"}, {Resource: "configmaps"}}},
		"view":    {"the objects are Events of the core group", "cannot be filtered", []schema.GroupResource{{Group: "events.k8s.io", Resource: "events"}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := controlplane.New("x").Storage(memory.Store{}).
				With(authz.FilteredLists{Resources: tc.resources}, core.Namespaces{}, core.Events{}).Build()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got %v", tc.reason, err)
			}
		})
	}
}

func fillGadgets(t *testing.T, config *rest.Config) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(config).Resource(gadgetsResource).Namespace("default")
	for _, name := range letters {
		if _, err := client.Create(context.Background(), gadget(name), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func gadget(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": name},
	}}
}

// names are those of the objects of a list, sorted.
func names(t *testing.T, list runtime.Object) []string {
	t.Helper()
	var all []string
	err := meta.EachListItem(list, func(o runtime.Object) error {
		m, err := meta.Accessor(o)
		if err == nil {
			all = append(all, m.GetName())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}
