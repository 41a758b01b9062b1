package storm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/yaml"

	"github.com/sailplane-dev/sailplane/test/federation/behind"
)

const (
	apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"
	rbac        = "/apis/rbac.authorization.k8s.io/v1"
	system      = "/namespaces/kube-system"
	account     = "/api/v1" + system + "/serviceaccounts"
	// own is the name of the front among the servers.
	own = "front"
)

// plane is a front with servers behind it.
type plane struct {
	dir     string
	front   *behind.Front
	admin   *client
	etcd    *behind.Process
	servers []*behind.Server
}

// groups are what clients write, one of each server.
func (p *plane) groups() []*group {
	return []*group{
		{server: own, version: "v1", kind: "ConfigMap", resource: "configmaps"},
		{server: "north", group: "north.example.com", version: "v1", kind: "Thing", resource: "things"},
		{server: "south", group: "south.example.com", version: "v1", kind: "Thing", resource: "things"},
		{server: "sample", group: "wardle.example.com", version: "v1alpha1", kind: "Flunder", resource: "flunders", spec: document{"reference": "x"}},
	}
}

// startPlane starts all, one after the other. What it returns is to be stopped, also with an error.
func startPlane(ctx context.Context, o Options) (*plane, error) {
	p := &plane{dir: o.Dir}
	front := filepath.Join(o.Dir, own)
	if err := os.MkdirAll(front, 0o700); err != nil {
		return p, err
	}
	var err error
	if p.front, err = behind.Serve(ctx, front, "--storage", "sqlite:"+filepath.Join(front, "objects.db")); err != nil {
		return p, err
	}
	if p.admin, err = newClient(p.front.Kubeconfig, nil); err != nil {
		return p, err
	}
	trust, err := p.admin.must(ctx, http.MethodGet, "/api/v1"+system+"/configmaps/extension-apiserver-authentication", nil)
	if err != nil {
		return p, err
	}
	authority := filepath.Join(o.Dir, "front-proxy.crt")
	text, _ := trust["data"].(document)["requestheader-client-ca-file"].(string)
	if err := os.WriteFile(authority, []byte(text), 0o600); err != nil {
		return p, err
	}
	for _, g := range p.groups() {
		if g.server == own {
			continue
		}
		if err := p.startServer(ctx, o, g, authority); err != nil {
			return p, fmt.Errorf("%s: %w", g.server, err)
		}
	}
	return p, nil
}

// startServer starts the server of a group, and has the front know it.
func (p *plane) startServer(ctx context.Context, o Options, g *group, authority string) (err error) {
	dir, s := filepath.Join(p.dir, g.server), (*behind.Server)(nil)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if g.server == "sample" {
		s, err = p.newSample(ctx, o.Programs, dir)
	} else {
		s, err = p.newSailplane(g, dir, authority)
	}
	if err != nil {
		return err
	}
	s.Announce = func(ctx context.Context) error { return p.announce(ctx, g, s) }
	if err := s.Run(); err != nil {
		return err
	}
	p.servers = append(p.servers, s)
	if err := s.Ready(ctx); err != nil {
		return err
	}
	if err := s.Announce(ctx); err != nil {
		return err
	}
	return behind.Until(ctx, o.Settle, func(ctx context.Context) error { return p.admin.available(ctx, g) })
}

func (p *plane) newSailplane(g *group, dir, authority string) (*behind.Server, error) {
	crds := filepath.Join(p.dir, g.server+"-crds")
	if err := os.MkdirAll(crds, 0o700); err != nil {
		return nil, err
	}
	crd := fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.%[2]s}
spec:
  group: %[2]s
  scope: Namespaced
  names: {plural: %[1]s, kind: %[3]s}
  versions: [{name: %[4]s, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`, g.resource, g.group, g.kind, g.version)
	if err := os.WriteFile(filepath.Join(crds, "crd.yaml"), []byte(crd), 0o600); err != nil {
		return nil, err
	}
	return behind.NewSailplane(g.server, dir, crds, authority)
}

// newSample has a sample-apiserver that asks the front as an account of its own.
func (p *plane) newSample(ctx context.Context, programs behind.Programs, dir string) (*behind.Server, error) {
	etcdDir := filepath.Join(p.dir, "etcd")
	if err := os.MkdirAll(etcdDir, 0o700); err != nil {
		return nil, err
	}
	subjects := []any{document{"kind": "ServiceAccount", "name": "sample", "namespace": "kube-system"}}
	bind := func(name, kind, role string) document {
		return document{
			"metadata": document{"name": name}, "subjects": subjects,
			"roleRef": document{"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
		}
	}
	for _, each := range []struct {
		path string
		body document
	}{
		{account, document{"metadata": document{"name": "sample"}}},
		{rbac + "/clusterrolebindings", bind("sample-auth", "ClusterRole", "system:auth-delegator")},
		{rbac + "/clusterrolebindings", bind("sample-all", "ClusterRole", "cluster-admin")},
		{rbac + system + "/rolebindings", bind("sample", "Role", "extension-apiserver-authentication-reader")},
	} {
		if _, err := p.admin.must(ctx, http.MethodPost, each.path, each.body); err != nil {
			return nil, err
		}
	}
	day := document{"spec": document{"expirationSeconds": 24 * 3600}}
	token, err := p.admin.must(ctx, http.MethodPost, account+"/sample/token", day)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.LoadFromFile(p.front.Kubeconfig)
	if err != nil {
		return nil, err
	}
	secret, _ := token["status"].(document)["token"].(string)
	for name := range maps.Keys(config.AuthInfos) {
		config.AuthInfos[name] = &api.AuthInfo{Token: secret}
	}
	kubeconfig := filepath.Join(p.dir, "sample.kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	var client string
	if p.etcd, client, err = programs.StartEtcd(etcdDir); err != nil {
		return nil, err
	}
	return programs.NewSample(dir, client, kubeconfig)
}

// announce creates the APIService of a server, or says that it is elsewhere.
func (p *plane) announce(ctx context.Context, g *group, s *behind.Server) error {
	text, err := yaml.YAMLToJSON([]byte(strings.TrimSuffix(s.APIService(g.group, g.version), "---")))
	if err != nil {
		return err
	}
	var service document
	if err := json.Unmarshal(text, &service); err != nil {
		return err
	}
	_, err = p.admin.must(ctx, http.MethodPatch, apiServices+"/"+g.apiService(), service)
	if err != nil {
		_, created := p.admin.must(ctx, http.MethodPost, apiServices, service)
		if created == nil {
			return nil
		}
		return errors.Join(err, created)
	}
	return nil
}

// stop ends all processes.
func (p *plane) stop() {
	for _, s := range p.servers {
		s.Kill()
	}
	if p.etcd != nil {
		p.etcd.Kill()
	}
	if p.front != nil {
		p.front.Kill()
	}
}
