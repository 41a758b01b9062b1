package extend

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	plugin "k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
	clientcache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/sailplane-dev/sailplane/pkg/internal/pki"
)

// believed knows callers as the host does. What its ConfigMap says stays in effect when that
// is deleted, or says nothing that can be used.
type believed struct {
	name   string
	client kubernetes.Interface
	tokens authenticator.Request
	now    atomic.Pointer[trust]
	pki.Listeners
}

// trust is what one version of the ConfigMap says.
type trust struct {
	authorities dynamiccertificates.CAContentProvider // of proxies and clients, for the listener
	known       authenticator.Request
}

var (
	_ authenticator.Request                 = (*believed)(nil)
	_ dynamiccertificates.CAContentProvider = (*believed)(nil)
)

// open prepares the review of tokens. It asks nothing yet.
func (b *believed) open(client kubernetes.Interface) error {
	reviewer, err := plugin.NewFromInterface(client.AuthenticationV1(), nil, *plugin.DefaultRetryBackoff(), hostTimeout,
		plugin.AuthenticatorMetrics{
			RecordRequestTotal:   func(context.Context, string) {},
			RecordRequestLatency: func(context.Context, string, float64) {},
		})
	if err != nil {
		return err
	}
	tokens := cache.New(reviewer, false, answersTTL, refusalsTTL)
	b.client, b.tokens = client, union.New(bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	return nil
}

// follow keeps to what the ConfigMap says, until the context ends.
func (b *believed) follow(ctx context.Context) {
	named := fields.OneTermEqualSelector(metav1.ObjectNameField, "extension-apiserver-authentication")
	source := clientcache.NewFilteredListWatchFromClient(b.client.CoreV1().RESTClient(), "configmaps", metav1.NamespaceSystem,
		func(o *metav1.ListOptions) { o.FieldSelector = named.String() })
	use := func(obj any) {
		told, ok := obj.(*corev1.ConfigMap)
		if !ok {
			return
		}
		next, err := trustOf(told.Data)
		if err != nil {
			klog.FromContext(ctx).Error(err, "What the host says of whom to believe cannot be used; what it said before stays in effect",
				"configMap", klog.KObj(told))
			return
		}
		b.now.Store(next)
		b.Notify()
	}
	_, informer := clientcache.NewInformerWithOptions(clientcache.InformerOptions{
		ListerWatcher: source, ObjectType: &corev1.ConfigMap{},
		Handler: clientcache.ResourceEventHandlerFuncs{AddFunc: use, UpdateFunc: func(_, obj any) { use(obj) }},
	})
	informer.RunWithContext(ctx)
}

// trustOf reads the ConfigMap
// (https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/).
func trustOf(data map[string]string) (*trust, error) {
	var proxies, clients dynamiccertificates.CAContentProvider
	var known []authenticator.Request
	if ca := data["requestheader-client-ca-file"]; ca != "" {
		var err error
		if proxies, err = dynamiccertificates.NewStaticCAContent("proxies", []byte(ca)); err != nil {
			return nil, fmt.Errorf("requestheader-client-ca-file: %w", err)
		}
		lists := map[string]headerrequest.StaticStringSlice{}
		for _, key := range []string{"allowed-names", "username-headers", "uid-headers", "group-headers", "extra-headers-prefix"} {
			var values []string
			key = "requestheader-" + key
			if data[key] != "" {
				if err := json.Unmarshal([]byte(data[key]), &values); err != nil {
					return nil, fmt.Errorf("%s: %w", key, err)
				}
			}
			lists[key] = values
		}
		known = append(known, headerrequest.NewDynamicVerifyOptionsSecure(proxies.VerifyOptions, lists["requestheader-allowed-names"],
			lists["requestheader-username-headers"], lists["requestheader-uid-headers"], lists["requestheader-group-headers"],
			lists["requestheader-extra-headers-prefix"]))
	}
	if ca := data["client-ca-file"]; ca != "" {
		var err error
		if clients, err = dynamiccertificates.NewStaticCAContent("clients", []byte(ca)); err != nil {
			return nil, fmt.Errorf("client-ca-file: %w", err)
		}
		known = append(known, x509request.NewDynamic(clients.VerifyOptions, x509request.CommonNameUserConversion))
	}
	switch {
	case proxies == nil && clients == nil:
		return nil, errors.New("it has neither requestheader-client-ca-file nor client-ca-file")
	case clients == nil:
		return &trust{proxies, union.New(known...)}, nil
	case proxies == nil:
		return &trust{clients, union.New(known...)}, nil
	}
	return &trust{dynamiccertificates.NewUnionCAContentProvider(proxies, clients), union.New(known...)}, nil
}

// AuthenticateRequest implements authenticator.Request.
func (b *believed) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	now := b.now.Load()
	if now == nil {
		return nil, false, nil
	}
	told, ok, err1 := now.known.AuthenticateRequest(r)
	if ok {
		return told, true, nil
	}
	told, ok, err2 := b.tokens.AuthenticateRequest(r) // also with a certificate that nobody here knows
	if ok {
		return told, true, nil
	}
	return nil, false, errors.Join(err1, err2)
}

// Name implements dynamiccertificates.CAContentProvider and healthz.HealthChecker.
func (b *believed) Name() string { return "host" }

// Check implements healthz.HealthChecker: nobody can be known before the host was reached.
func (b *believed) Check(*http.Request) error {
	if b.now.Load() == nil {
		return fmt.Errorf("ConfigMap kube-system/extension-apiserver-authentication of %s was not read yet", b.name)
	}
	return nil
}

// CurrentCABundleContent implements dynamiccertificates.CAContentProvider.
func (b *believed) CurrentCABundleContent() []byte {
	if now := b.now.Load(); now != nil {
		return now.authorities.CurrentCABundleContent()
	}
	return nil
}

// VerifyOptions implements dynamiccertificates.CAContentProvider.
func (b *believed) VerifyOptions() (x509.VerifyOptions, bool) {
	if now := b.now.Load(); now != nil {
		return now.authorities.VerifyOptions()
	}
	return x509.VerifyOptions{}, false
}
