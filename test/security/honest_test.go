package security

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/fairness"
	"github.com/sailplane-dev/sailplane/test/crds"
)

// TestHonestUse: what honest clients do passes with the limits of "sailplane serve", and nobody has to come back.
func TestHonestUse(t *testing.T) {
	t.Parallel()
	// Nor does the address count for less than others.
	w := serveLimited(t, controlplane.Limits{Addresses: controlplane.AddressLimits{Trusted: []netip.Prefix{}}}, fairness.Defaults())
	for name, use := range map[string]func(*testing.T, *world){
		"definitions": realDefinitions, "a release of Helm": release, "a long selector": selector, "an apply of 1,000 objects": applyObjects,
		"300 watches": watches, "a busy controller": controller,
	} {
		t.Run(name, func(t *testing.T) { use(t, w) })
	}
	w.unharmed(t)
}

// realDefinitions are those of real projects, applied as fast as it goes.
func realDefinitions(t *testing.T, w *world) {
	n, size := 0, 0
	for _, set := range append(crds.Sets(), crds.Crossplane()) {
		files, err := set.Files(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; n++ {
				document, err := documents.Read()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				body, err := yaml.ToJSON(document)
				if err != nil || !bytes.Contains(body, []byte(`"CustomResourceDefinition"`)) {
					continue
				}
				size += len(body)
				a := w.send(t, request{
					as: "definer", method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body: string(body),
				})
				// The experimental set has the names of the other one.
				if a.code != http.StatusCreated && a.code != http.StatusConflict {
					t.Errorf("%s: %d %s", file, a.code, short(a.body))
				}
			}
		}
	}
	t.Logf("%d definitions, %d bytes", n, size)
}

// release is as large as Helm's may be.
func release(t *testing.T, w *world) {
	const size = 1<<20 - 1<<10
	w.must(t, request{as: "chief", method: "POST", path: tenant + "/secrets", body: `{"metadata":{"name":"sh.helm.release.v1.a.v1"},` +
		`"type":"helm.sh/release.v1","stringData":{"release":"` + strings.Repeat("a", size) + `"}}`}, http.StatusCreated)
}

func selector(t *testing.T, w *world) {
	var names []string
	for i := range 1_000 {
		names = append(names, fmt.Sprintf("name-%04d", i))
	}
	w.must(t, request{
		as: "watcher", method: "GET", path: tenant + "/configmaps?labelSelector=app+in+(" + strings.Join(names, ",") + ")",
	}, http.StatusOK)
}

// applyObjects sends 1,000 objects, each as kubectl does, and ten at a time.
func applyObjects(t *testing.T, w *world) {
	const objects, workers = 1_000, 10
	begun := time.Now()
	w.share(t, workers, objects, func(i int) error {
		path := fmt.Sprintf("%s/configmaps/applied-%d", tenant, i)
		if err := w.answers(t, request{as: "editor", method: "GET", path: path}, http.StatusNotFound); err != nil {
			return err
		}
		return w.answers(t, request{
			as: "editor", method: "PATCH", path: path + "?fieldManager=kubectl", contentType: "application/apply-patch+yaml",
			body: configMap(fmt.Sprintf("applied-%d", i), `{"a":"`+strings.Repeat("a", 1_000)+`"}`),
		}, http.StatusCreated)
	})
	t.Logf("%.0f requests per second", 2*objects/time.Since(begun).Seconds())
}

// watches are those of one account: an operator with informers of many resources.
func watches(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.must(t, request{method: "POST", path: rbacv1 + "/namespaces/tenant/rolebindings", body: `{"metadata":{"name":"operator"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"admin"},` +
		`"subjects":[{"kind":"ServiceAccount","name":"operator","namespace":"tenant"}]}`}, http.StatusCreated)
	operator := w.account(t, "operator")
	const one = tenant + "/configmaps?fieldSelector=metadata.name%3Dopen"
	w.await(t, operator.request("GET", one, ""), http.StatusOK)
	for range 300 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+one+"&watch=true", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+string(operator))
		resp, err := w.plain.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("a watch: %d", resp.StatusCode)
		}
	}
}

// controller updates an object of 10 KB 50 times a second for a while.
func controller(t *testing.T, w *world) {
	path := tenant + "/configmaps/status"
	w.must(t, request{as: "editor", method: "POST", path: tenant + "/configmaps", body: configMap("status", `{"a":"`+strings.Repeat("a", 10_000)+`"}`)}, http.StatusCreated)
	next := time.NewTicker(time.Second / 50)
	defer next.Stop()
	for i := range 150 {
		<-next.C
		if err := w.answers(t, request{
			as: "editor", method: "PATCH", path: path, contentType: "application/merge-patch+json", body: fmt.Sprintf(`{"data":{"n":"%d"}}`, i),
		}, http.StatusOK); err != nil {
			t.Fatal(err)
		}
	}
}

// share has workers share calls.
func (w *world) share(t *testing.T, workers, calls int, call func(int) error) {
	t.Helper()
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for j := i; j < calls; j += workers {
				if err := call(j); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// answers sends a request that is to be answered so.
func (w *world) answers(t *testing.T, r request, code int) error {
	t.Helper()
	a, err := w.try(t.Context(), r)
	if err == nil && a.code != code {
		err = fmt.Errorf("%s %s: %d, want %d: %s", r.method, short(r.path), a.code, code, short(a.body))
	}
	return err
}
