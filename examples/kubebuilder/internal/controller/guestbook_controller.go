// Package controller makes the objects that guestbooks ask for.
package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"html"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	webappv1 "example.com/guestbook/api/v1"
)

// Directory is the name of the ConfigMap that has the titles of all guestbooks
// of a namespace. It belongs to none of them: a deleted guestbook's line is
// removed.
const Directory = "guestbooks"

// GuestbookReconciler reconciles a Guestbook object.
type GuestbookReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// +kubebuilder:rbac:groups=webapp.example.com,resources=guestbooks,verbs=get;list;watch;update;patch
// +kubebuilder:rbac:groups=webapp.example.com,resources=guestbooks/status,verbs=get;update;patch
// +kubebuilder:rbac:groups=webapp.example.com,resources=guestbooks/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create;update;patch
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update;patch

// Reconcile makes the page, the servers and the line in the directory of a
// guestbook, and writes their state into its status.
func (r *GuestbookReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	book := &webappv1.Guestbook{}
	if err := r.Get(ctx, req.NamespacedName, book); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if book.DeletionTimestamp != nil {
		return ctrl.Result{}, r.leave(ctx, book)
	}
	if controllerutil.AddFinalizer(book, webappv1.Finalizer) {
		if err := r.Update(ctx, book); err != nil {
			return ctrl.Result{}, err
		}
	}
	if err := r.enter(ctx, book); err != nil {
		return ctrl.Result{}, fmt.Errorf("write the directory: %w", err)
	}
	if err := r.page(ctx, book); err != nil {
		return ctrl.Result{}, fmt.Errorf("write the page: %w", err)
	}
	servers, err := r.servers(ctx, book)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("write the deployment: %w", err)
	}
	return ctrl.Result{}, r.observe(ctx, book, servers)
}

// enter writes the line of a guestbook into the directory.
func (r *GuestbookReconciler) enter(ctx context.Context, book *webappv1.Guestbook) error {
	directory := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: Directory}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, directory, func() error {
		if directory.Data == nil {
			directory.Data = map[string]string{}
		}
		directory.Data[book.Name] = book.Spec.Title
		return nil
	})
	return err
}

// leave removes the line of a guestbook from the directory, then its finalizer.
func (r *GuestbookReconciler) leave(ctx context.Context, book *webappv1.Guestbook) error {
	if !controllerutil.ContainsFinalizer(book, webappv1.Finalizer) {
		return nil
	}
	// The cache may not have the line yet: remove it without reading.
	line, err := json.Marshal(map[string]any{"data": map[string]any{book.Name: nil}})
	if err != nil {
		return err
	}
	directory := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: Directory}}
	err = r.Patch(ctx, directory, client.RawPatch(types.MergePatchType, line))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the directory: %w", err)
	}
	controllerutil.RemoveFinalizer(book, webappv1.Finalizer)
	return client.IgnoreNotFound(r.Update(ctx, book))
}

// page writes the ConfigMap with the page.
func (r *GuestbookReconciler) page(ctx context.Context, book *webappv1.Guestbook) error {
	page := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: book.Name + "-page"}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, page, func() error {
		page.Data = map[string]string{"index.html": fmt.Sprintf("<h1>%s</h1>\n<p>%s</p>\n",
			html.EscapeString(book.Spec.Title), html.EscapeString(book.Spec.Greeting))}
		return controllerutil.SetControllerReference(book, page, r.Scheme)
	})
	return err
}

// servers writes the Deployment that serves the page.
func (r *GuestbookReconciler) servers(ctx context.Context, book *webappv1.Guestbook) (*appsv1.Deployment, error) {
	servers := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: book.Namespace, Name: book.Name}}
	labels := map[string]string{"app.kubernetes.io/name": "guestbook", "app.kubernetes.io/instance": book.Name}
	_, err := controllerutil.CreateOrUpdate(ctx, r.Client, servers, func() error {
		servers.Spec.Replicas = book.Spec.Replicas
		if servers.Spec.Selector == nil { // it cannot be changed
			servers.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		}
		servers.Spec.Template.Labels = labels
		if len(servers.Spec.Template.Spec.Containers) == 0 { // keep what is defaulted
			servers.Spec.Template.Spec.Containers = []corev1.Container{{}}
		}
		container := &servers.Spec.Template.Spec.Containers[0]
		container.Name, container.Image = "server", "registry.example.com/guestbook:v1"
		container.Args = []string{"--page=" + book.Name + "-page", "--storage=" + book.Spec.Storage}
		return controllerutil.SetControllerReference(book, servers, r.Scheme)
	})
	return servers, err
}

// observe writes the status, if it changed.
func (r *GuestbookReconciler) observe(ctx context.Context, book *webappv1.Guestbook, servers *appsv1.Deployment) error {
	before := book.DeepCopy()
	book.Status.ReadyReplicas = servers.Status.ReadyReplicas
	available := metav1.Condition{
		Type: webappv1.ConditionAvailable, Status: metav1.ConditionTrue, Reason: "Serving",
		Message: "all servers serve the page", ObservedGeneration: book.Generation,
	}
	if want := *book.Spec.Replicas; servers.Status.ReadyReplicas < want {
		available.Status, available.Reason = metav1.ConditionFalse, "ServersMissing"
		available.Message = fmt.Sprintf("%d of %d servers serve the page", servers.Status.ReadyReplicas, want)
	}
	meta.SetStatusCondition(&book.Status.Conditions, available)
	if equality.Semantic.DeepEqual(before.Status, book.Status) {
		return nil
	}
	return r.Status().Patch(ctx, book, client.MergeFrom(before))
}

// SetupWithManager sets up the controller with the Manager.
func (r *GuestbookReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&webappv1.Guestbook{}).
		Owns(&corev1.ConfigMap{}).
		Owns(&appsv1.Deployment{}).
		Named("guestbook").
		Complete(r)
}
