// Package pki makes and keeps the certificates with which a server and its
// administrator know each other, and writes the kubeconfig that holds them.
//
// [Dir.Load] returns an [Identity]: a certificate authority, a serving certificate
// and an administrator's client certificate, all ECDSA P-256. A folder keeps them
// between starts; the empty [Dir] makes new ones in memory. An identity that is
// complete and valid is returned as it is. A leaf certificate that is missing,
// about to expire or does not meet the request is issued again. The authority is
// never replaced, because every kubeconfig handed out depends on it: a fault in it
// is an error.
//
//	endpoint, err := pki.EndpointOf(listener.Addr())
//	id, err := pki.Dir("data/pki").Load(ctx, pki.Request{Hosts: endpoint.Hosts})
//	err = pki.WriteKubeconfig("admin.kubeconfig", id.Kubeconfig(endpoint.URL, ""))
//
// Files are replaced whole (temporary file, fsync, rename), and a lock file
// keeps two processes from issuing into one folder at the same time.
package pki
