package main

import (
	"cmp"
	"context"
	"crypto/x509"
	"net/netip"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/apis"
)

// registry is the API group of the clusters.
func registry(watch bool) *apis.Group {
	options := []apis.Option{
		apis.CreateOnUpdate(), apis.Status(), apis.Validate(validate),
		apis.Columns(func(c *v1alpha1.Cluster) []any {
			ok := c.Condition(v1alpha1.ClusterOK)
			return []any{c.ServerFor(netip.Addr{}), string(cmp.Or(ok.Status, metav1.ConditionUnknown)), c.Status.Version, ok.Message}
		},
			metav1.TableColumnDefinition{Name: "Server", Type: "string"},
			metav1.TableColumnDefinition{Name: "OK", Type: "string"},
			metav1.TableColumnDefinition{Name: "Version", Type: "string"},
			metav1.TableColumnDefinition{Name: "Message", Type: "string", Priority: 1},
		),
	}
	if !watch {
		options = append(options, apis.Verbs("create", "get", "list", "update", "patch", "delete", "deletecollection"))
	}
	return apis.NewGroup(v1alpha1.GroupVersion(), nil, nil, apis.Resource[v1alpha1.Cluster, v1alpha1.ClusterList]("clusters", options...))
}

func validate(_ context.Context, c *v1alpha1.Cluster) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec", "kubernetesApiEndpoints")
	for i, e := range c.Spec.KubernetesAPIEndpoints.ServerEndpoints {
		at := path.Child("serverEndpoints").Index(i)
		if _, err := netip.ParsePrefix(cmp.Or(e.ClientCIDR, "::/0")); err != nil {
			errs = append(errs, field.Invalid(at.Child("clientCIDR"), e.ClientCIDR, `want a network: "10.0.0.0/8"`))
		}
		if u, err := url.Parse(e.URL()); err != nil || u.Host == "" || u.Scheme != "https" || u.User != nil {
			errs = append(errs, field.Invalid(at.Child("serverAddress"), "", "want a host, host and port, or a URL of https without user"))
		}
	}
	if ca := c.Spec.KubernetesAPIEndpoints.CABundle; len(ca) > 0 && !x509.NewCertPool().AppendCertsFromPEM(ca) {
		errs = append(errs, field.Invalid(path.Child("caBundle"), len(ca), "it has no certificate in PEM"))
	}
	return errs
}

// profiles shows each cluster as a ClusterProfile (KEP-4322), read only, so that the tools of the
// Multicluster SIG find it. Clients get credentials from the access provider that they know by the name.
func profiles(provider string, watch bool) *apis.Group {
	publish := func(c *v1alpha1.Cluster, p *inventory.ClusterProfile) bool {
		metav1.SetMetaDataLabel(&p.ObjectMeta, inventory.LabelClusterManagerKey, manager)
		p.Spec = inventory.ClusterProfileSpec{DisplayName: c.Name, ClusterManager: inventory.ClusterManager{Name: manager}}
		p.Status.Version.Kubernetes = c.Status.Version
		ok := c.Condition(v1alpha1.ClusterOK)
		p.Status.Conditions = []metav1.Condition{{
			Type: inventory.ClusterConditionControlPlaneHealthy, Status: cmp.Or(ok.Status, metav1.ConditionUnknown),
			Reason: cmp.Or(ok.Reason, "NotSeen"), Message: ok.Message, LastTransitionTime: ok.LastTransitionTime,
		}}
		p.Status.AccessProviders = []inventory.AccessProvider{{Name: provider, Cluster: clientcmdv1.Cluster{
			Server: c.ServerFor(netip.Addr{}), CertificateAuthorityData: c.Spec.KubernetesAPIEndpoints.CABundle,
		}}}
		return true
	}
	verbs := []string{"get", "list", "watch"}
	if !watch {
		verbs = verbs[:2]
	}
	return apis.NewGroup(inventory.GroupVersion, nil, nil,
		apis.Project[inventory.ClusterProfile, inventory.ClusterProfileList]("clusterprofiles",
			apis.Over(v1alpha1.GroupVersion().String(), "clusters"), publish, nil, apis.Verbs(verbs...)))
}
