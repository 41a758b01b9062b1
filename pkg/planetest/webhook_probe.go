package planetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// probe tells when webhook configurations are in force. The server learns of them
// from a watch, all of a kind together: once it calls the webhook whose
// configuration was written last, it calls all. The probe is that webhook, for
// something that webhooks under test do not ask for, status updates of namespaces.
type probe struct {
	host   string
	mu     sync.Mutex
	called map[string]bool // by kind of configuration
}

// probePatience is how long configurations may take on a busy machine.
const probePatience = 30 * time.Second

// ServeHTTP allows everything.
func (w *probe) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	review := &v1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil || review.Request == nil {
		http.Error(rw, "no AdmissionReview with a request", http.StatusBadRequest)
		return
	}
	w.mu.Lock()
	w.called[strings.TrimPrefix(r.URL.Path, "/")] = true
	w.mu.Unlock()
	review.Response = &v1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	review.Request = nil
	rw.Header().Set("Content-Type", "application/json")
	// A server that is gone needs no answer.
	_ = json.NewEncoder(rw).Encode(review)
}

// missing are the kinds of configurations that are not in force.
func (w *probe) missing() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var kinds []string
	for kind, called := range w.called {
		if !called {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// run waits until all configurations that were written before are in force.
func (w *probe) run(ctx context.Context, client dynamic.Interface, config *rest.Config) error {
	var all []*unstructured.Unstructured
	for _, kind := range slices.Sorted(maps.Keys(w.called)) {
		all = append(all, w.configuration(kind))
	}
	if err := applyWebhooks(ctx, client, all); err != nil {
		return err
	}
	if err := w.await(ctx, config); err != nil {
		return err
	}
	for _, o := range all {
		if err := webhookClient(client, o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (w *probe) configuration(kind string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"webhooks": []any{map[string]any{
			"name":                    w.host,
			"clientConfig":            map[string]any{"url": "https://" + w.host + "/" + kind},
			"admissionReviewVersions": []any{"v1"},
			"sideEffects":             "None",
			"failurePolicy":           "Ignore",
			"matchPolicy":             "Exact",
			"rules": []any{map[string]any{
				"operations": []any{"UPDATE"}, "apiGroups": []any{""}, "apiVersions": []any{"v1"},
				"resources": []any{"namespaces/status"},
			}},
		}},
	}}
	o.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind(kind))
	o.SetName(w.host)
	return o
}

// await updates the status of a namespace, to no effect, until the probe is called.
func (w *probe) await(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, probePatience, fmt.Errorf("not after %v", probePatience))
	defer cancel()
	// A starting plane calls no webhook for its own requests.
	config.Impersonate = rest.ImpersonationConfig{UserName: FieldManager, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	last := errors.New("the server does not call webhooks: does the plane have the webhook parts of package admit?")
	err = wait.PollUntilContextCancel(ctx, time.Millisecond, true, func(ctx context.Context) (bool, error) {
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		if err == nil {
			_, err = client.CoreV1().Namespaces().UpdateStatus(ctx, ns, metav1.UpdateOptions{DryRun: dryRun()})
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		return len(w.missing()) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("wait until configurations of kinds %v are in force: %w: %w", w.missing(), context.Cause(ctx), last)
	}
	return nil
}
