package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/examples/clusterregistry/api/v1alpha1"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
)

// export serves the whole list as one file, with what the caller may get, at /export?format=.
type export struct {
	user  *clientcmdv1.AuthInfo // of kubeconfigs
	plane atomic.Pointer[controlplane.Plane]
	turn  sync.Mutex // one export at a time, so that they need the memory of one
}

// Install declares the path.
func (e *export) Install(p *controlplane.Plan) error {
	p.Work(controlplane.Work{Name: "export", Start: func(_ context.Context, plane *controlplane.Plane) error {
		e.plane.Store(plane)
		return nil
	}})
	p.Handle("/export", e)
	return nil
}

func (e *export) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, err := e.text(r)
	if err != nil {
		status := apierrors.NewInternalError(err)
		_ = errors.As(err, &status)
		http.Error(w, err.Error(), int(status.ErrStatus.Code))
		return
	}
	_, _ = w.Write(text)
}

// text lists as the caller.
func (e *export) text(r *http.Request) ([]byte, error) {
	e.turn.Lock()
	defer e.turn.Unlock()
	who, known := request.UserFrom(r.Context())
	plane := e.plane.Load()
	if plane == nil || !known {
		return nil, apierrors.NewServiceUnavailable("the registry starts: try again")
	}
	to := plane.Config()
	to.Impersonate = rest.ImpersonationConfig{UserName: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra()}
	c, err := newClient(to)
	if err != nil {
		return nil, err
	}
	var list v1alpha1.ClusterList
	if err := c.List(r.Context(), &list); err != nil {
		return nil, err
	}
	switch format := r.URL.Query().Get("format"); format {
	case "", "yaml":
		return yaml.Marshal(list.Bare())
	case "json":
		return json.MarshalIndent(list.Bare(), "", "  ")
	case "kubeconfig":
		from, _ := netip.ParseAddrPort(r.RemoteAddr)
		return yaml.Marshal(list.Kubeconfig(from.Addr(), e.user))
	default:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("format %q: want yaml, json or kubeconfig", format))
	}
}

// readUser reads the user of kubeconfigs: a YAML file with exec or auth-provider, and no secret.
func readUser(file string) (*clientcmdv1.AuthInfo, error) {
	if file == "" {
		return nil, nil
	}
	var only struct {
		Exec         *clientcmdv1.ExecConfig         `json:"exec"`
		AuthProvider *clientcmdv1.AuthProviderConfig `json:"auth-provider"`
	}
	content, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(content, &only)
	}
	if err == nil && only.AuthProvider != nil {
		for _, secret := range []string{"client-secret", "id-token", "refresh-token", "access-token"} {
			if only.AuthProvider.Config[secret] != "" {
				err = fmt.Errorf("auth-provider has a %s, which exports would give away", secret)
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("user of kubeconfigs: %s: %w", file, err)
	}
	return &clientcmdv1.AuthInfo{Exec: only.Exec, AuthProvider: only.AuthProvider}, nil
}

func exportCommand(kubeconfig *string) *cobra.Command {
	var format, to string
	var every time.Duration
	c := &cobra.Command{Use: "export", Short: "Write all clusters to a file, once or on a schedule", Args: cobra.NoArgs}
	c.Flags().StringVar(&format, "format", "yaml", "yaml, json or kubeconfig")
	c.Flags().StringVar(&to, "to", "", "directory for the file clusters.FORMAT; empty: standard output")
	c.Flags().DurationVar(&every, "every", 0, "time between two exports; 0: only one")
	c.RunE = func(c *cobra.Command, _ []string) error {
		run := func() error { return save(c.Context(), *kubeconfig, format, to, c.OutOrStdout()) }
		if every <= 0 {
			return run()
		}
		wait.UntilWithContext(c.Context(), func(context.Context) {
			if err := run(); err != nil {
				fmt.Fprintf(c.ErrOrStderr(), "%v: the last export stays, the next try is in %v\n", err, every)
			}
		}, every)
		return nil
	}
	return c
}

// save has all of an export before it writes it.
func save(ctx context.Context, kubeconfig, format, to string, out io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	content, err := server.RESTClient().Get().AbsPath("/export").Param("format", format).DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("%w: %s", err, content)
	}
	if to == "" {
		_, err = out.Write(content)
		return err
	}
	next, err := os.CreateTemp(to, ".export-")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(next.Name()) }() // if it does not become the file
	_, err = next.Write(content)
	if err = errors.Join(err, next.Sync(), next.Close()); err != nil {
		return err
	}
	return os.Rename(next.Name(), filepath.Join(to, "clusters."+format))
}
