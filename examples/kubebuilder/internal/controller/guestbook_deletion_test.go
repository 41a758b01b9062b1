//go:build !envtest

package controller

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "example.com/guestbook/api/v1"
)

// What envtest cannot show: it has no garbage collector, and its namespaces stay.
var _ = Describe("Guestbook deletion", func() {
	var book *webappv1.Guestbook
	var owned []client.Object

	gone := func(o client.Object) {
		GinkgoHelper()
		Eventually(func() error { return k8sClient.Get(ctx, client.ObjectKeyFromObject(o), o) }).
			Should(Satisfy(apierrors.IsNotFound))
	}

	BeforeEach(func() {
		book = newBook()
		Expect(k8sClient.Create(ctx, book)).To(Succeed())
		owned = []client.Object{beside(book, &corev1.ConfigMap{}, "hut-page"), beside(book, &appsv1.Deployment{}, "hut")}
		for _, o := range owned {
			Eventually(func() error { return k8sClient.Get(ctx, client.ObjectKeyFromObject(o), o) }).Should(Succeed())
		}
	})

	It("takes with it what the guestbook owns", func() {
		Expect(k8sClient.Delete(ctx, book)).To(Succeed())
		for _, o := range append(owned, book) {
			gone(o)
		}
		Expect(now(beside(book, &corev1.ConfigMap{}, Directory))()).To(HaveField("Data", BeEmpty()))
	})

	It("lets the namespace go", func() {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: book.Namespace}}
		Expect(k8sClient.Delete(ctx, namespace)).To(Succeed())
		gone(namespace)
		gone(book)
	})
})
