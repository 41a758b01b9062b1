package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"net"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// tokens is a part of our own: the users of this program by their bearer
// tokens, all of them administrators.
type tokens map[string]string

// Install declares an authenticator.
func (t tokens) Install(p *controlplane.Plan) error {
	p.Authenticate("tokens", bearertoken.New(authenticator.TokenFunc(
		func(_ context.Context, token string) (*authenticator.Response, bool, error) {
			name, ok := t[token]
			if !ok {
				return nil, false, nil // another authenticator may know it
			}
			return &authenticator.Response{
				User: &user.DefaultInfo{Name: name, Groups: []string{user.SystemPrivilegedGroup}},
			}, true, nil
		})))
	return nil
}

func newToken() string { return rand.Text() }

// selfSigned makes a certificate for this machine, and its PEM for clients.
func selfSigned() (tls.Certificate, []byte, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return pair, certificate, err
}

// writeKubeconfig lets kubectl in.
func writeKubeconfig(addr net.Addr, ca []byte, users tokens) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["embedded"] = &clientcmdapi.Cluster{Server: "https://" + addr.String(), CertificateAuthorityData: ca}
	for token, name := range users {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
		config.Contexts["embedded"] = &clientcmdapi.Context{Cluster: "embedded", AuthInfo: name}
	}
	config.CurrentContext = "embedded"
	return clientcmd.WriteToFile(*config, "admin.kubeconfig")
}
