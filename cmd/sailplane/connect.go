package main

import (
	"fmt"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// kubeconfigUsage describes the flag of commands that find a server as kubectl does.
const kubeconfigUsage = "kubeconfig file of the server (default as kubectl: $KUBECONFIG, ~/.kube/config)"

// connection is how a command goes through the objects of a running server.
type connection struct {
	host      string
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface
}

// connect returns a connection to the server of a kubeconfig; "": the one of kubectl.
func connect(kubeconfig string) (*connection, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	config.QPS = -1 // the server's fairness sets the pace
	// That a kind is old is no news to who goes through all of them.
	config.WarningHandlerWithContext = rest.NoWarnings{}
	c := &connection{host: config.Host}
	if c.objects, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if c.discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return nil, err
	}
	return c, nil
}
