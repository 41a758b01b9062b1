package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
)

const (
	asJSON = "application/json"
	// maxAnswer bounds what is read of an answer.
	maxAnswer = 64 << 20
	// maxShown bounds what a result shows of an answer.
	maxShown = 400
)

// ask is a request.
type ask struct {
	method, path string
	query        url.Values
	header       map[string]string
	body         any // bytes as they are, else as JSON
}

// answer is what came of it.
type answer struct {
	sent   string
	code   int
	header http.Header
	body   []byte
}

// do sends a request.
func (s *server) do(ctx context.Context, a ask) (*answer, error) {
	r, sent, err := s.request(ctx, a)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, &mismatch{sent, err.Error(), "an answer"}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return nil, &mismatch{sent, err.Error(), "the whole answer"}
	}
	return &answer{sent, response.StatusCode, response.Header, body}, nil
}

func (s *server) request(ctx context.Context, a ask) (r *http.Request, sent string, err error) {
	u := *s.base
	u.Path = strings.TrimRight(u.Path, "/") + a.path
	u.RawQuery = a.query.Encode()
	var body []byte
	switch b := a.body.(type) {
	case nil:
	case []byte:
		body = b
	default:
		if body, err = json.Marshal(b); err != nil {
			return nil, "", err
		}
	}
	if r, err = http.NewRequestWithContext(ctx, a.method, u.String(), bytes.NewReader(body)); err != nil {
		return nil, "", err
	}
	r.Header.Set("Accept", asJSON)
	if body != nil {
		r.Header.Set("Content-Type", asJSON)
	}
	sent = a.method + " " + u.RequestURI()
	for name, value := range a.header {
		r.Header.Set(name, value)
		sent += " " + name + ": " + value
	}
	if body != nil {
		sent += " " + short(body)
	}
	return r, sent, nil
}

func short(b []byte) string {
	text := strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
	if len(text) > maxShown {
		text = text[:maxShown] + "..."
	}
	return text
}

// wrong says what an answer should have been.
func (a *answer) wrong(format string, args ...any) error {
	return &mismatch{a.sent, fmt.Sprintf("%d %s", a.code, short(a.body)), fmt.Sprintf(format, args...)}
}

// object reads the answer as an object, which must be of a code.
func (a *answer) object(codes ...int) (*unstructured.Unstructured, error) {
	if err := a.is(codes...); err != nil {
		return nil, err
	}
	o := &unstructured.Unstructured{}
	if json.Unmarshal(a.body, &o.Object) != nil || o.Object == nil {
		return nil, a.wrong("a JSON object")
	}
	return o, nil
}

// is tells whether the answer has one of the codes.
func (a *answer) is(codes ...int) error {
	for _, c := range codes {
		if a.code == c {
			return nil
		}
	}
	return a.wrong("%s", strings.Trim(strings.ReplaceAll(fmt.Sprint(codes), " ", " or "), "[]"))
}

// refuses tells whether the answer is a Status with one of the codes, and a reason unless that is
// empty.
func (a *answer) refuses(reason metav1.StatusReason, codes ...int) error {
	if err := a.is(codes...); err != nil {
		return err
	}
	var s metav1.Status
	if json.Unmarshal(a.body, &s) != nil || s.Kind != "Status" || s.APIVersion != "v1" {
		return a.wrong("a Status, apiVersion v1")
	}
	if s.Status != metav1.StatusFailure || int(s.Code) != a.code || s.Message == "" || reason != "" && s.Reason != reason {
		return a.wrong("status Failure, code %d, a message, and reason %q", a.code, reason)
	}
	return nil
}

// get reads an object, which must be there.
func (r *resource) get(ctx context.Context, name string) (*unstructured.Unstructured, error) {
	a, err := r.do(ctx, ask{method: http.MethodGet, path: r.path(name)})
	if err != nil {
		return nil, err
	}
	return a.object(http.StatusOK)
}

// fresh is an object that was not created yet.
func (r *resource) fresh(change ...func(*unstructured.Unstructured)) *unstructured.Unstructured {
	o := (&unstructured.Unstructured{Object: r.sample}).DeepCopy()
	o.SetAPIVersion(r.gvr.GroupVersion().String())
	o.SetKind(r.kind)
	o.SetName(fmt.Sprintf("v%d", r.objects.Add(1)))
	for _, f := range change {
		f(o)
	}
	return o
}

// create makes an object.
func (r *resource) create(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	a, err := r.do(ctx, ask{method: http.MethodPost, path: r.path(), body: o.Object})
	if err != nil {
		return nil, err
	}
	return a.object(http.StatusCreated)
}

// made creates an object for a check that is about something else.
func (r *resource) made(ctx context.Context, change ...func(*unstructured.Unstructured)) (*unstructured.Unstructured, error) {
	return r.create(ctx, r.fresh(change...))
}

func labelled(key, value string) func(*unstructured.Unstructured) {
	return func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{key: value}) }
}

// connect reads what the server has.
func connect(ctx context.Context, o Options) (*server, error) {
	config := rest.CopyConfig(o.Config)
	config.Timeout = 0
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	s := &server{Options: o, client: client, base: base, lists: map[schema.GroupVersion]*metav1.APIResourceList{}}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	var core metav1.APIVersions
	a, err := s.do(ctx, ask{method: http.MethodGet, path: "/api"})
	if err == nil && a.code == http.StatusOK && json.Unmarshal(a.body, &core) == nil { // it may have no core group
		for _, v := range core.Versions {
			s.versions = append(s.versions, schema.GroupVersion{Version: v})
		}
	}
	if a, err = s.do(ctx, ask{method: http.MethodGet, path: "/apis"}); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", base, err)
	}
	var groups metav1.APIGroupList
	if a.code != http.StatusOK || json.Unmarshal(a.body, &groups) != nil {
		return nil, fmt.Errorf("the server at %s has no API: %w", base, a.wrong("a list of groups"))
	}
	for _, g := range groups.Groups {
		for _, v := range g.Versions {
			s.versions = append(s.versions, schema.GroupVersion{Group: g.Name, Version: v.Version})
		}
	}
	for _, gv := range s.versions {
		a, err := s.do(ctx, ask{method: http.MethodGet, path: prefix(gv)})
		list := &metav1.APIResourceList{}
		if err == nil && a.code == http.StatusOK && json.Unmarshal(a.body, list) == nil {
			s.lists[gv] = list
		}
	}
	return s, nil
}

// enter finds the resources, and makes the namespaces that they are verified in. The returned
// function deletes the namespaces, and waits until they are gone.
func (s *server) enter(ctx context.Context) (end func(context.Context) error, err error) {
	run := "verify-" + utilrand.String(6)
	var namespaces []string
	known := map[string]int{}
	for _, gv := range s.versions {
		if !s.wanted(gv) || s.lists[gv] == nil {
			continue
		}
		for _, one := range s.lists[gv].APIResources {
			if !one.Namespaced || strings.Contains(one.Name, "/") || one.Kind == "" {
				continue
			}
			r := &resource{server: s, gvr: gv.WithResource(one.Name), kind: one.Kind, verbs: one.Verbs, namespace: run}
			for _, sub := range s.lists[gv].APIResources {
				r.status = r.status || sub.Name == one.Name+"/status"
			}
			// Of the same name it may be another version of the same objects.
			if known[one.Name]++; known[one.Name] > 1 {
				r.namespace = fmt.Sprintf("%s-%d", run, known[one.Name])
			}
			if !slices.Contains(namespaces, r.namespace) {
				namespaces = append(namespaces, r.namespace)
			}
			s.resources = append(s.resources, r)
		}
	}
	var made []string
	end = func(ctx context.Context) error { return s.leave(ctx, made) }
	for _, name := range namespaces {
		a, err := s.do(ctx, ask{method: http.MethodPost, path: allNamespaces, body: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name},
		}})
		switch {
		case err != nil:
			return nil, errors.Join(err, end(ctx))
		case a.code == http.StatusCreated:
			made = append(made, name)
		case a.code != http.StatusNotFound: // it has no namespaces, and takes any
			return nil, errors.Join(fmt.Errorf("make a namespace: %w", a.wrong("201")), end(ctx))
		}
	}
	return end, nil
}

const allNamespaces = "/api/v1/namespaces"

// leave deletes namespaces, and waits until they are gone.
func (s *server) leave(ctx context.Context, namespaces []string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*s.Timeout)
	defer cancel()
	for len(namespaces) > 0 {
		var left []string
		for _, name := range namespaces {
			a, err := s.do(ctx, ask{method: http.MethodDelete, path: allNamespaces + "/" + name})
			if err != nil {
				return fmt.Errorf("namespace %s is not gone: %w", name, err)
			}
			if a.code != http.StatusNotFound {
				left = append(left, name)
			}
		}
		namespaces = left
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("namespaces %v are deleted and not gone: does a controller of namespaces run? %w", left, ctx.Err())
		}
	}
	return nil
}
