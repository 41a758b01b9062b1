package extend

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/internal/dialing"
)

const (
	// hostTimeout bounds a question to the host.
	hostTimeout = 10 * time.Second
	// answersTTL is how long what the host says of a token or a right is kept, as extension
	// servers of Kubernetes do. They keep refusals as long: who is given a right waits for it.
	answersTTL  = 10 * time.Second
	refusalsTTL = time.Second
)

// Host is the part of an API server that extends another one, its host: it takes from the
// host who somebody is, what they may do, which namespaces there are, and their quotas.
//
//   - Who asks: requests that the host hands on, known by the certificate of its proxy, and
//     those that come here directly with a client certificate of the host's authorities or a
//     token that it reviews. Whom to believe is read from the ConfigMap
//     extension-apiserver-authentication of kube-system, and followed.
//   - What they may do: the host is asked by SubjectAccessReviews, of other groups of this
//     server than its own too. What it allows is kept for ten seconds. Members of
//     system:masters may do everything.
//   - Creates of objects in namespaces: by one CreateReview, so that there are none in a
//     namespace that the host does not have or deletes, and none beyond a quota. A host
//     without [CreateReviews], such as kube-apiserver, is asked for the namespace.
//   - A namespace that is deleted at the host is emptied by it, through the APIService.
//
// The server starts without its host; it is ready when it was reached once. Nobody is known
// before. The user of the kubeconfig needs at the host the ClusterRole system:auth-delegator,
// the Role extension-apiserver-authentication-reader of kube-system, and the rights to create
// createreviews.policy.sailplane.dev, or to get namespaces.
type Host struct {
	// Kubeconfig is a file that says where the host is and how to log in there. It is read by
	// Build and when a server starts; only its owner and group may have permissions on it.
	// Required.
	Kubeconfig string
}

// PartName implements the name errors use.
func (Host) PartName() string { return "extend.Host" }

// Install implements controlplane.Part.
func (Host) Install(*controlplane.Plan) error { return controlplane.ErrServerOnly }

// InstallServer declares who is known, who may do what, and the admission.
func (h Host) InstallServer(p *controlplane.ServerPlan) error {
	if h.Kubeconfig == "" {
		return errors.New("field Kubeconfig: is empty: name a kubeconfig of the server that this one extends")
	}
	name := "host " + h.Kubeconfig
	believed := &believed{name: name}
	asked := &asked{}
	p.Root().Read(func() error {
		if _, err := h.config(); err != nil {
			return fmt.Errorf("field Kubeconfig: %w", err)
		}
		return nil
	})
	p.Trust("clients and proxies of "+name, believed)
	p.Root().Work(controlplane.Work{
		Name: name,
		Start: func(context.Context, *controlplane.Plane) error {
			config, err := h.config()
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			if err := believed.open(client); err != nil {
				return err
			}
			return asked.open(client)
		},
		Run: func(ctx context.Context, _ *controlplane.Plane) error {
			believed.follow(ctx)
			return nil
		},
	})
	p.EachPlane(func(p *controlplane.Plan) {
		p.Authenticate(name, believed)
		p.Authorize(name, asked)
		p.Admit("namespaces and quotas of "+name, admits{asked})
		p.Check(believed)
	})
	return nil
}

// config is how to reach the host.
func (h Host) config() (*rest.Config, error) {
	config, err := dialing.Kubeconfig(h.Kubeconfig)
	if err == nil {
		config.QPS = -1 // requests are limited before they are authorized
	}
	return config, err
}
