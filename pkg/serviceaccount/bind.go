package serviceaccount

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// account reads the account that a token is requested for.
func (r *running) account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if err := readable(name); err != nil {
		return nil, err
	}
	return r.core.ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
}

// bind makes the token end with an object. None: with its time and its account.
func (r *running) bind(ctx context.Context, ref *authenticationv1.BoundObjectReference, c *claims) error {
	if ref == nil {
		return nil
	}
	gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	bind := map[schema.GroupKind]func(context.Context, string, *claims) (*reference, error){
		{Kind: "Pod"}: r.bindPod, {Kind: "Secret"}: r.bindSecret, {Kind: "Node"}: r.bindNode,
	}[gvk.GroupKind()]
	if bind == nil {
		return apierrors.NewBadRequest(fmt.Sprintf("cannot bind token to object of type %s", gvk.String()))
	}
	if err := readable(ref.Name); err != nil {
		return err
	}
	found, err := bind(ctx, ref.Name, c)
	if err != nil {
		return err
	}
	if ref.UID != "" && ref.UID != found.UID {
		return conflict(gvk, ref.Name, fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record. "+
			"The object might have been deleted and then recreated", ref.UID))
	}
	return nil
}

func (r *running) bindSecret(ctx context.Context, name string, c *claims) (*reference, error) {
	secret, err := r.core.Secrets(c.Kubernetes.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c.Kubernetes.Secret = &reference{Name: secret.Name, UID: secret.UID}
	return c.Kubernetes.Secret, nil
}

func (r *running) bindNode(ctx context.Context, name string, c *claims) (*reference, error) {
	node, err := r.core.Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	c.Kubernetes.Node = &reference{Name: node.Name, UID: node.UID}
	return c.Kubernetes.Node, nil
}

// bindPod also adds the node of the Pod, by its name alone when there is no such Node.
func (r *running) bindPod(ctx context.Context, name string, c *claims) (*reference, error) {
	k := &c.Kubernetes
	pod, err := r.core.Pods(k.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if pod.Spec.ServiceAccountName != k.ServiceAccount.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf(
			"cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", k.ServiceAccount.Name))
	}
	k.Pod = &reference{Name: pod.Name, UID: pod.UID}
	if pod.Spec.NodeName == "" {
		return k.Pod, nil
	}
	if _, err := r.bindNode(ctx, pod.Spec.NodeName, c); apierrors.IsNotFound(err) {
		k.Node = &reference{Name: pod.Spec.NodeName}
	} else if err != nil {
		return nil, apierrors.NewInternalError(errors.Join(errors.New("read the node of the pod"), err))
	}
	return k.Pod, nil
}
