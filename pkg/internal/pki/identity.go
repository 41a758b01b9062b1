package pki

import (
	"cmp"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// DefaultContext is the name of a kubeconfig's context, cluster and user when
// none is given.
const DefaultContext = "sailplane"

// Identity is a certificate authority and what it has signed, all in PEM.
type Identity struct {
	// CA is the certificate by which clients know the server and the server
	// knows its clients.
	CA []byte
	// ServerCert and ServerKey are the server's serving certificate.
	ServerCert, ServerKey []byte
	// AdminCert and AdminKey are the administrator's client certificate.
	AdminCert, AdminKey []byte
	// NotAfter is when the first of the two leaf certificates ends. A server
	// that runs as long as that has to load its identity again.
	NotAfter time.Time
	// Renew is when the first of them is issued again, if the identity is loaded then.
	Renew time.Time
	// Revoked are the revocation lists of the folder, empty if there are none. See
	// [ParseLists].
	Revoked []byte
}

// Kubeconfig returns a kubeconfig for the administrator, certificates and key
// embedded. server is the API server's URL; name is that of its one context,
// cluster and user, and empty means [DefaultContext].
func (i *Identity) Kubeconfig(server, name string) *clientcmdapi.Config {
	name = cmp.Or(name, DefaultContext)
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: i.CA}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: i.AdminCert, ClientKeyData: i.AdminKey}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return config
}
