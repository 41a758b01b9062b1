package planetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// WithWebhooks makes a handler in the test process answer webhooks: those of the
// ValidatingWebhookConfigurations and MutatingWebhookConfigurations of the sources,
// which are in force when the plane has started. Their Services or URLs may be any:
// requests go to the handler, at their path, without TLS. An http.ServeMux is the
// handler of several paths, and the admission.Webhook of controller-runtime that of one:
//
//	mux := http.NewServeMux()
//	mux.Handle("/mutate-v1-widget", admission.WithDefaulter(scheme, &WidgetDefaulter{}))
//	plane := planetest.Start(t, planetest.WithWebhooks(mux, planetest.Files("config/webhook/manifests.yaml")))
//
// A manager of controller-runtime takes the mux too: it registers the webhooks
// and conversions of a project there, and must not listen:
//
//	type inProcess struct{ webhook.Server }
//
//	func (inProcess) Start(ctx context.Context) error { <-ctx.Done(); return nil }
//	func (inProcess) StartedChecker() healthz.Checker { return healthz.Ping }
//
//	manager, err := ctrl.NewManager(plane.Config(), ctrl.Options{
//		WebhookServer: inProcess{webhook.NewServer(webhook.Options{WebhookMux: mux})},
//	})
//
// CRDs whose conversion webhook is at the same Service or host are converted by
// the handler too. CA bundles are left out of the configurations. The plane needs
// the webhook parts of package admit, which [Defaults] has.
func WithWebhooks(handler http.Handler, configurations ...Source) controlplane.Part {
	return webhooks{handler: handler, sources: configurations}
}

type webhooks struct {
	handler http.Handler
	sources []Source
}

// PartName implements the name errors use.
func (webhooks) PartName() string { return "planetest.WithWebhooks" }

// Install declares the handler of every host, and the configurations.
func (w webhooks) Install(p *controlplane.Plan) error {
	if w.handler == nil {
		return errors.New("the handler is nil")
	}
	p.Read(func() error { return w.declare(p) })
	return nil
}

func (w webhooks) declare(p *controlplane.Plan) error {
	var all []*unstructured.Unstructured
	hosts := map[string]bool{}
	for _, s := range w.sources {
		objects, err := s(scheme.Scheme)
		if err != nil {
			return err
		}
		for _, o := range objects {
			local, err := prepareWebhooks(o.Unstructured, hosts)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", o.from, describe(o.Unstructured), err)
			}
			all = append(all, local)
		}
	}
	if len(all) == 0 {
		return errors.New("there is no ValidatingWebhookConfiguration and no MutatingWebhookConfiguration in the sources")
	}
	for _, host := range slices.Sorted(maps.Keys(hosts)) {
		p.ServeHost(host, w.handler)
	}
	names := make([]string, 0, len(all))
	probe := &probe{host: "probe." + all[0].GetName() + ".invalid", called: map[string]bool{}}
	for _, o := range all {
		names = append(names, describe(o))
		probe.called[o.GetKind()] = false
		p.Need("admissionregistration."+o.GetKind()+"s{}", o.GroupVersionKind())
	}
	p.ServeHost(probe.host, probe)
	name := "webhooks " + strings.Join(names, ", ")
	p.Work(controlplane.Work{Name: name, Start: func(ctx context.Context, plane *controlplane.Plane) error {
		client, err := dynamic.NewForConfig(plane.Config())
		if err != nil {
			return err
		}
		if err := applyWebhooks(ctx, client, all); err != nil {
			return err
		}
		return probe.run(ctx, client, plane.Config())
	}})
	return nil
}

// prepareWebhooks returns a configuration without CA bundles, and adds the hosts of
// its webhooks, as the server calls them.
func prepareWebhooks(o *unstructured.Unstructured, hosts map[string]bool) (*unstructured.Unstructured, error) {
	switch kind := o.GroupVersionKind(); kind {
	case admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"),
		admissionv1.SchemeGroupVersion.WithKind("MutatingWebhookConfiguration"):
	default:
		return nil, fmt.Errorf("it is of %s, not a webhook configuration of %s", kind.GroupVersion(), admissionv1.SchemeGroupVersion)
	}
	if o.GetName() == "" {
		return nil, errors.New("metadata.name is missing")
	}
	o = o.DeepCopy()
	hooks, _, err := unstructured.NestedSlice(o.Object, "webhooks")
	if err != nil {
		return nil, err
	}
	for i := range hooks {
		hook, ok := hooks[i].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("webhooks[%d] is %T, not an object", i, hooks[i])
		}
		unstructured.RemoveNestedField(hook, "clientConfig", "caBundle")
		host, err := hostOf(hook)
		if err != nil {
			return nil, fmt.Errorf("webhooks[%d].clientConfig: %w", i, err)
		}
		hosts[host] = true
	}
	return o, unstructured.SetNestedSlice(o.Object, hooks, "webhooks")
}

// hostOf is the host and port that the server would connect to for a webhook.
func hostOf(hook map[string]any) (string, error) {
	const https = "443"
	// A converter would not take the numbers that YAML has.
	data, err := json.Marshal(hook["clientConfig"])
	if err != nil {
		return "", err
	}
	var c admissionv1.WebhookClientConfig
	if err := json.Unmarshal(data, &c); err != nil {
		return "", err
	}
	switch {
	case c.Service != nil:
		port := https
		if c.Service.Port != nil {
			port = strconv.Itoa(int(*c.Service.Port))
		}
		return net.JoinHostPort(c.Service.Name+"."+c.Service.Namespace+".svc", port), nil
	case c.URL != nil:
		u, err := url.Parse(*c.URL)
		if err != nil {
			return "", err
		}
		if u.Port() == "" {
			return net.JoinHostPort(u.Host, https), nil
		}
		return u.Host, nil
	}
	return "", errors.New("neither a service nor a url")
}

// webhookClient is the client for configurations of the kind of the object.
func webhookClient(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return client.Resource(resource)
}

func applyWebhooks(ctx context.Context, client dynamic.Interface, all []*unstructured.Unstructured) error {
	for _, o := range all {
		options := metav1.ApplyOptions{FieldManager: FieldManager, Force: true}
		if _, err := webhookClient(client, o).Apply(ctx, o.GetName(), o, options); err != nil {
			return fmt.Errorf("%s: %w", describe(o), err)
		}
	}
	return nil
}
