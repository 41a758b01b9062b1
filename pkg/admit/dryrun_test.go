package admit_test

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/sailplane-dev/sailplane/pkg/admit"
	"github.com/sailplane-dev/sailplane/pkg/controlplane"
	"github.com/sailplane-dev/sailplane/pkg/storage/memory"
)

// held is a storage that a test looks into.
type held struct{ controlplane.Backend }

// Open implements controlplane.Storage.
func (h held) Open() controlplane.Backend { return h.Backend }

// Traits implements controlplane.Storage.
func (held) Traits() controlplane.Traits { return memory.Store{}.Traits() }

// TestSideEffects: a dry run changes nothing anywhere. A webhook that would not
// keep to that cannot be registered; one that is stored, by an older version of
// the API, is not asked. What a dry run asks of others is in TestWebhooks.
func TestSideEffects(t *testing.T) {
	t.Parallel()
	h := newHookServer(t)
	storage := held{memory.Store{}.Open()}
	config := startOn(t, storage, hookParts(admit.ValidatingWebhooks{}))
	for _, s := range []admissionv1.SideEffectClass{admissionv1.SideEffectClassSome, admissionv1.SideEffectClassUnknown} {
		hook := h.hook("effects", "/deny", admissionv1.Ignore)
		hook.SideEffects = &s
		_, err := typedClient(t, config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(),
			&admissionv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "effects"}, Webhooks: []admissionv1.ValidatingWebhook{hook},
			}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "sideEffects") {
			t.Errorf("%s: got %v", s, err)
		}
	}
	registerHooks(t, config, h.hook("effects", "/deny", admissionv1.Ignore))
	store(t, config, storage, "/validatingwebhookconfigurations/hooks")
	client := dynamicClient(t, config)
	eventually(t, "a dry run is refused", func() bool {
		_, err := tryObject(t, client, configMaps(), labelled(configMaps(), "tried", "effects"))
		return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
	})
	_, err := client.Resource(configMaps()).Namespace("default").Create(t.Context(), labelled(configMaps(), "real", "effects"), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "no thanks") {
		t.Errorf("what is not a dry run is asked about: %v", err)
	}
}

// store gives the stored webhook side effects, past validation.
func store(t *testing.T, config *rest.Config, storage controlplane.Backend, suffix string) {
	t.Helper()
	hooks, err := typedClient(t, config).AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "hooks", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	*hooks.Webhooks[0].SideEffects, hooks.ResourceVersion = admissionv1.SideEffectClassSome, ""
	hooks.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("ValidatingWebhookConfiguration"))
	var encoded strings.Builder
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(hooks, &encoded); err != nil {
		t.Fatal(err)
	}
	client, err := storage.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	found, err := client.Get(t.Context(), "/", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range found.Kvs {
		if !strings.HasSuffix(string(kv.Key), suffix) {
			continue
		}
		// As the stores do: a storage of kine takes nothing but transactions.
		_, err := client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
			Then(clientv3.OpPut(string(kv.Key), encoded.String())).Else(clientv3.OpGet(string(kv.Key))).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatalf("nothing is stored as %s", suffix)
}
