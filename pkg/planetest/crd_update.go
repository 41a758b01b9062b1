package planetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Update changes the CRDs to those of a source, which may be several, and waits
// until they are in force. The test ends when the plane refuses one. A plane takes a
// second longer to stop then, in which the server would end requests that use the
// CRD before: let such tests run in parallel.
func (d *Definition) Update(crds Source) *Definition {
	d.t.Helper()
	if err := d.install(contextOf(d.t), crds); err != nil {
		d.t.Fatalf("update the CRD: %v", err)
	}
	return d
}

// RefusesToUpdate has the test fail when the plane would take the CRDs of a source
// for what it has, or does not say all of the messages.
func (d *Definition) RefusesToUpdate(crds Source, messages ...string) *Definition {
	d.t.Helper()
	all, err := d.read(crds)
	if err != nil {
		d.t.Fatalf("CRD: %v", err)
	}
	for _, crd := range all {
		_, err := d.put(contextOf(d.t), crd.Unstructured, dryRun())
		d.refused(crd.Unstructured, err, messages)
	}
	return d
}

// StoredVersions has the test fail when status.storedVersions of the CRDs is not this.
func (d *Definition) StoredVersions(want ...string) *Definition {
	d.t.Helper()
	for _, name := range d.names() {
		crd, err := d.plane.admin().crds().Get(contextOf(d.t), name, metav1.GetOptions{})
		if err != nil {
			d.t.Fatalf("CRD: %v", err)
		}
		got, _, err := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		if err != nil || !slices.Equal(got, want) {
			d.t.Errorf("the stored versions of %s are %q, want %q", name, got, want)
		}
	}
	return d
}

// crds is the client of CRDs.
func (p *Plane) crds() dynamic.ResourceInterface {
	return p.Dynamic().Resource(crdKind().WithVersion("v1").GroupVersion().WithResource("customresourcedefinitions"))
}

// roll makes a CRD what is given, and waits until the server uses it.
func (d *Definition) roll(ctx context.Context, crd sourced) error {
	before, err := d.plane.admin().crds().Get(ctx, crd.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		given := func(*runtime.Scheme) ([]sourced, error) { return []sourced{crd}, nil }
		_, err = d.plane.admin().apply(ctx, given)
	case err == nil:
		err = d.replace(ctx, crd.Unstructured, before)
	}
	if err != nil {
		return err
	}
	d.know(crd.Unstructured)
	return nil
}

// replace updates a CRD that is there. The server answers by the one before until
// its caches have the new one, and says nothing of that. So the new one comes
// with a warning at first: once requests have the warning, it is taken away, and
// once they have it no more, all of the new CRD is in force.
func (d *Definition) replace(ctx context.Context, crd, before *unstructured.Unstructured) error {
	tried, err := d.put(ctx, crd, dryRun())
	if err != nil || reflect.DeepEqual(tried.Object["spec"], before.Object["spec"]) {
		return err
	}
	mark := "planetest " + rand.Text()
	marked := crd.DeepCopy()
	versions, _, err := unstructured.NestedSlice(marked.Object, "spec", "versions")
	if err != nil {
		return err
	}
	served := ""
	for i := range versions {
		if v, ok := versions[i].(map[string]any); ok && v["served"] == true {
			served, _ = v["name"].(string)
			v["deprecated"], v["deprecationWarning"] = true, mark
			break
		}
	}
	if err := unstructured.SetNestedSlice(marked.Object, versions, "spec", "versions"); err != nil {
		return err
	}
	if served != "" { // else nobody can be asked
		if _, err := d.put(ctx, marked, nil); err != nil {
			return err
		}
		if err := d.awaitMark(ctx, pathOf(crd, served), mark, true); err != nil {
			return err
		}
	}
	written, err := d.put(ctx, crd, nil)
	if err != nil {
		return err
	}
	if served != "" {
		if err := d.awaitMark(ctx, pathOf(crd, served), mark, false); err != nil {
			return err
		}
	}
	d.plane.RESTMapper().Reset()
	d.plane.admin().RESTMapper().Reset()
	return d.plane.admin().established(ctx, []*unstructured.Unstructured{written})
}

// put makes a CRD that is there what is given. Its status is the server's.
func (d *Definition) put(ctx context.Context, crd *unstructured.Unstructured, dry []string) (*unstructured.Unstructured, error) {
	client := d.plane.admin().crds()
	var written *unstructured.Unstructured
	err := retryConflict(ctx, func() error {
		now, err := client.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		crd := crd.DeepCopy()
		crd.SetResourceVersion(now.GetResourceVersion())
		crd.SetUID(now.GetUID())
		crd.Object["status"] = now.Object["status"]
		written, err = client.Update(ctx, crd, metav1.UpdateOptions{
			DryRun: dry, FieldManager: FieldManager, FieldValidation: metav1.FieldValidationStrict,
		})
		return err
	})
	return written, err
}

// retryConflict calls f again while somebody else wrote between its read and write.
func retryConflict(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !apierrors.IsConflict(err) || ctx.Err() != nil {
			return err
		}
	}
}

// awaitMark waits until requests for custom resources have a warning, or no more.
func (d *Definition) awaitMark(ctx context.Context, path, mark string, want bool) error {
	config := d.plane.root.config
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	// There is no object of the name: nothing is read or converted.
	url := strings.TrimSuffix(config.Host, "/") + path + "/" + strings.ToLower(strings.ReplaceAll(mark, " ", "-"))
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body) // the header tells
		_ = response.Body.Close()
		if strings.Contains(strings.Join(response.Header.Values("Warning"), "\n"), mark) == want {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("wait until the CRD is in force: %w", context.Cause(ctx))
		}
	}
}
