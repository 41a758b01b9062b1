package v1alpha1

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// DefaultNamespace is where clusters are that everybody may know of.
const DefaultNamespace = "kube-multicluster-public"

// Bare is the list as it is written into a file and applied again: without versions, times and IDs.
func (l *ClusterList) Bare() *metav1.List {
	bare := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	for _, c := range l.Items {
		c.TypeMeta = metav1.TypeMeta{APIVersion: GroupVersion().String(), Kind: "Cluster"}
		c.ObjectMeta = metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: c.Labels, Annotations: c.Annotations}
		bare.Items = append(bare.Items, runtime.RawExtension{Object: &c})
	}
	return bare
}

// Kubeconfig has a context NAMESPACE/NAME for each cluster that has a server for the client, and the
// user for all of them, if there is one.
func (l *ClusterList) Kubeconfig(client netip.Addr, user *clientcmdv1.AuthInfo) *clientcmdv1.Config {
	config, named := &clientcmdv1.Config{APIVersion: "v1", Kind: "Config"}, ""
	if user != nil {
		named = "clusterregistry"
		config.AuthInfos = []clientcmdv1.NamedAuthInfo{{Name: named, AuthInfo: *user}}
	}
	for _, c := range l.Items {
		server := c.ServerFor(client)
		if server == "" {
			continue
		}
		name, ca := c.Namespace+"/"+c.Name, c.Spec.KubernetesAPIEndpoints.CABundle
		config.Clusters = append(config.Clusters, clientcmdv1.NamedCluster{
			Name: name, Cluster: clientcmdv1.Cluster{Server: server, CertificateAuthorityData: ca},
		})
		config.Contexts = append(config.Contexts, clientcmdv1.NamedContext{
			Name: name, Context: clientcmdv1.Context{Cluster: name, AuthInfo: named},
		})
	}
	return config
}
