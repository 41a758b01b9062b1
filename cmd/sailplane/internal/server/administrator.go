package server

import (
	"net"
	"path/filepath"

	"github.com/sailplane-dev/sailplane/cmd/sailplane/internal/config"
	"github.com/sailplane-dev/sailplane/pkg/authn"
)

// Administrator returns the part that makes the server's authority, and the
// kubeconfig of its administrator.
func Administrator(c *config.Server) authn.Admin {
	hosts, address := advertised(c)
	return authn.Admin{Dir: pkiDir(c), Kubeconfig: Kubeconfig(c), Hosts: hosts, Address: address}
}

// pkiDir has the certificates, and the key for tokens.
func pkiDir(c *config.Server) string { return filepath.Join(c.DataDir, "pki") }

// advertised returns the names and addresses for the certificate, and the address
// for the kubeconfig, HOST or HOST:PORT; empty if there is none to advertise.
func advertised(c *config.Server) (hosts []string, address string) {
	for _, a := range c.Advertise {
		host, _, err := net.SplitHostPort(a)
		if err != nil {
			host = a
		}
		hosts = append(hosts, host)
	}
	if len(c.Advertise) > 0 {
		address = c.Advertise[0]
	}
	return hosts, address
}

// Kubeconfig is the file of the administrator's kubeconfig.
func Kubeconfig(c *config.Server) string {
	if c.Kubeconfig == "" && c.DataDir != "" {
		return filepath.Join(c.DataDir, "admin.kubeconfig")
	}
	return c.Kubeconfig
}

// proxyDir keeps the authority by which aggregated servers know this one.
func (b *build) proxyDir() string {
	if b.DataDir == "" {
		return ""
	}
	return filepath.Join(b.DataDir, "pki", "front-proxy")
}
