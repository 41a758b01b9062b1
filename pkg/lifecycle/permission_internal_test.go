package lifecycle

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

func TestOwnerPermissions(t *testing.T) {
	t.Parallel()
	yes := true
	free := metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "root", UID: "1"}
	blocking := free
	blocking.BlockOwnerDeletion = &yes
	unknown := blocking
	unknown.Kind = "Nobody"
	cases := map[string]struct {
		reason      string
		before, now []metav1.OwnerReference
		create      bool
		may         string // what the user may do: "VERB RESOURCE/SUBRESOURCE"
		want        string // "": allowed
	}{
		"Create":        {reason: "who creates an object may say who owns it", now: []metav1.OwnerReference{free}, create: true},
		"Unchanged":     {reason: "owners that stay need no permission", before: []metav1.OwnerReference{blocking}, now: []metav1.OwnerReference{blocking}},
		"Added":         {reason: "an owner may mean deletion", now: []metav1.OwnerReference{free}, want: "cannot set an ownerRef on a resource you can't delete"},
		"Removed":       {reason: "the last owner that is left may be gone", before: []metav1.OwnerReference{free}, want: "cannot set an ownerRef on a resource you can't delete"},
		"MayDelete":     {reason: "who may delete the object may", now: []metav1.OwnerReference{free}, may: "delete configmaps/"},
		"Blocking":      {reason: "the owner waits", now: []metav1.OwnerReference{blocking}, create: true, want: "a resource you can't set finalizers on"},
		"MayBlock":      {reason: "who may change its finalizers may", now: []metav1.OwnerReference{blocking}, create: true, may: "update secrets/finalizers"},
		"UnknownKind":   {reason: "nobody knows whom to ask about", now: []metav1.OwnerReference{unknown}, create: true, want: "cannot find RESTMapping for APIVersion v1 Kind Nobody"},
		"UnblockedOnly": {reason: "to stop blocking is a change like any other", before: []metav1.OwnerReference{blocking}, now: []metav1.OwnerReference{free}, may: "delete configmaps/"},
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := &ownerPermissions{Handler: admission.NewHandler(admission.Create, admission.Update), mapper: mapper}
			o.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
				if a.GetNamespace() == "shop" && a.GetVerb()+" "+a.GetResource()+"/"+a.GetSubresource() == c.may {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "no", nil
			}))
			object := func(refs []metav1.OwnerReference) *corev1.ConfigMap {
				return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: refs}}
			}
			operation, old := admission.Update, object(c.before)
			attributes := admission.NewAttributesRecord(object(c.now), old, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "shop", "a",
				schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", operation, nil, false, &user.DefaultInfo{Name: "ann"})
			if c.create {
				attributes = admission.NewAttributesRecord(object(c.now), nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "shop", "a",
					schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
			}
			err := o.Validate(t.Context(), attributes, nil)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
			}
		})
	}
}

// learning is a mapper that knows a new kind after it was reset.
type learning struct{ *meta.DefaultRESTMapper }

// Reset implements meta.ResettableRESTMapper.
func (l learning) Reset() {
	l.Add(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}, meta.RESTScopeNamespace)
}

// TestOwnerOfNewKind: an owner may be of a kind that came after the mapper was read.
func TestOwnerOfNewKind(t *testing.T) {
	t.Parallel()
	o := &ownerPermissions{Handler: admission.NewHandler(admission.Create, admission.Update), mapper: learning{meta.NewDefaultRESTMapper(nil)}}
	o.SetAuthorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetAPIGroup() == "example.com" && a.GetResource() == "gadgets" && a.GetSubresource() == "finalizers" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "no", nil
	}))
	yes := true
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "a", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "example.com/v1", Kind: "Gadget", Name: "root", UID: "1", BlockOwnerDeletion: &yes},
	}}}
	attributes := admission.NewAttributesRecord(cm, nil, corev1.SchemeGroupVersion.WithKind("ConfigMap"), "shop", "a",
		schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "", admission.Create, nil, false, &user.DefaultInfo{Name: "ann"})
	if err := o.Validate(t.Context(), attributes, nil); err != nil {
		t.Error(err)
	}
}
