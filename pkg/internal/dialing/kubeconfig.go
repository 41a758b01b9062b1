package dialing

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/sailplane-dev/sailplane/pkg/internal/secretfile"
)

// Kubeconfig returns how to reach the API server that a file names, and to log in there. Only the owner and group
// of the file may have permissions on it. What it names, such as a tokenFile, clients read again when it changes.
func Kubeconfig(file string) (*rest.Config, error) {
	if _, err := secretfile.Read(file); err != nil {
		return nil, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: file} // relative paths begin where it is
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	config.Wrap(WithoutRedirects)
	return config, nil
}
