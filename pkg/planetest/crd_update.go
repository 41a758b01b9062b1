package planetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

// Update changes the CRDs to those of a source, which may be several, and waits
// until they are in force. The test ends when the plane refuses one. The plane then
// takes a second longer to stop, in which the server would end requests that use
// the old CRD: run such tests in parallel.
func (d *Definition) Update(crds Source) *Definition {
	d.t.Helper()
	if err := d.install(contextOf(d.t), crds); err != nil {
		d.t.Fatalf("update the CRD: %v", err)
	}
	return d
}

// RefusesToUpdate fails the test when the plane would accept the CRDs of a source
// as an update, or the error does not contain all of the messages.
func (d *Definition) RefusesToUpdate(crds Source, messages ...string) *Definition {
	d.t.Helper()
	all, err := d.definitionsOf(crds)
	if err != nil {
		d.t.Fatalf("CRD: %v", err)
	}
	for _, crd := range all {
		_, err := d.write(contextOf(d.t), crd.Unstructured, dryRun())
		d.refused(crd.Unstructured, err, messages)
	}
	return d
}

// StoredVersions fails the test when status.storedVersions of the CRDs is not this.
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

// rollOut creates or updates a CRD, and waits until the server uses it.
func (d *Definition) rollOut(ctx context.Context, crd sourced) error {
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
	d.recordServed(crd.Unstructured)
	return nil
}

// replace updates a CRD. The server uses the old one until its caches have the
// new one, and does not tell when. So the new one comes with a warning at first:
// once responses have the warning, it is removed, and once they have it no more,
// all of the new CRD is in force.
func (d *Definition) replace(ctx context.Context, crd, before *unstructured.Unstructured) error {
	tried, err := d.write(ctx, crd, dryRun())
	if err != nil || reflect.DeepEqual(tried.Object["spec"], before.Object["spec"]) {
		return err
	}
	mark := "planetest " + rand.Text()
	marked := crd.DeepCopy()
	versions := versionsOf(marked)
	served := slices.IndexFunc(versions, func(v version) bool { return v.served })
	if served >= 0 { // else no request can tell
		versions[served].fields["deprecated"], versions[served].fields["deprecationWarning"] = true, mark
		if _, err := d.write(ctx, marked, nil); err != nil {
			return err
		}
		if err := d.awaitWarning(ctx, marked, versions[served].name, mark, true); err != nil {
			return err
		}
	}
	written, err := d.write(ctx, crd, nil)
	if err != nil {
		return err
	}
	if served >= 0 {
		if err := d.awaitWarning(ctx, written, versions[served].name, mark, false); err != nil {
			return err
		}
	}
	d.plane.RESTMapper().Reset()
	d.plane.admin().RESTMapper().Reset()
	return d.plane.admin().established(ctx, []*unstructured.Unstructured{written})
}

// write writes a CRD over the old one and keeps its status.
func (d *Definition) write(ctx context.Context, crd *unstructured.Unstructured, dry []string) (*unstructured.Unstructured, error) {
	client := d.plane.admin().crds()
	var written *unstructured.Unstructured
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		now, err := client.Get(ctx, crd.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		crd := crd.DeepCopy()
		crd.SetResourceVersion(now.GetResourceVersion())
		crd.SetUID(now.GetUID())
		crd.Object["status"] = now.Object["status"]
		written, err = client.Update(ctx, crd, updateOptions(dry))
		return err
	})
	return written, err
}

// awaitWarning waits until responses for custom resources have a warning, or no more.
func (d *Definition) awaitWarning(ctx context.Context, crd *unstructured.Unstructured, version, warning string, want bool) error {
	var warnings strings.Builder
	config := d.plane.admin().Config()
	config.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace := ""
	if scope, _, _ := unstructured.NestedString(crd.Object, "spec", "scope"); scope == "Namespaced" {
		namespace = metav1.NamespaceDefault
	}
	resource := client.Resource(resourceOf(crd, version)).Namespace(namespace)
	err = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(ctx context.Context) (bool, error) {
		warnings.Reset()
		// There is no object of the name: nothing is read or converted.
		_, _ = resource.Get(ctx, "planetest-warning", metav1.GetOptions{})
		return strings.Contains(warnings.String(), warning) == want, nil
	})
	if err != nil {
		return fmt.Errorf("wait until the CRD is in force: %w", context.Cause(ctx))
	}
	return nil
}
