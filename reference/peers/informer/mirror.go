// What must be equal to a list? The store of an informer, and what its handler has been told.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// A mirror of one kind.
type mirror struct {
	kind  string
	list  func() (runtime.Object, error)
	store cache.Store

	lock    sync.Mutex
	told    map[string]runtime.Object
	notices int
}

func newMirror(kind string, informer cache.SharedIndexInformer, list func() (runtime.Object, error)) (*mirror, error) {
	m := &mirror{kind: kind, list: list, store: informer.GetStore(), told: map[string]runtime.Object{}}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { m.hear(object) },
		UpdateFunc: func(_, object any) { m.hear(object) },
		DeleteFunc: func(object any) { m.forget(object) },
	})
	return m, err
}

func builtin(ctx context.Context, client kubernetes.Interface, factory informers.SharedInformerFactory, namespace string) ([]*mirror, error) {
	all := metav1.ListOptions{}
	kinds := []struct {
		kind     string
		informer cache.SharedIndexInformer
		list     func() (runtime.Object, error)
	}{
		{"configmaps", factory.Core().V1().ConfigMaps().Informer(), func() (runtime.Object, error) {
			return client.CoreV1().ConfigMaps(namespace).List(ctx, all)
		}},
		{"secrets", factory.Core().V1().Secrets().Informer(), func() (runtime.Object, error) {
			return client.CoreV1().Secrets(namespace).List(ctx, all)
		}},
		{"pods", factory.Core().V1().Pods().Informer(), func() (runtime.Object, error) {
			return client.CoreV1().Pods(namespace).List(ctx, all)
		}},
		{"deployments", factory.Apps().V1().Deployments().Informer(), func() (runtime.Object, error) {
			return client.AppsV1().Deployments(namespace).List(ctx, all)
		}},
	}
	var mirrors []*mirror
	for _, row := range kinds {
		mirror, err := newMirror(row.kind, row.informer, row.list)
		if err != nil {
			return nil, err
		}
		mirrors = append(mirrors, mirror)
	}
	return mirrors, nil
}

func customMirror(
	ctx context.Context, client dynamic.Interface, factory dynamicinformer.DynamicSharedInformerFactory,
	resource schema.GroupVersionResource, namespace string,
) (*mirror, error) {
	list := func() (runtime.Object, error) {
		return client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{})
	}
	return newMirror(resource.Resource, factory.ForResource(resource).Informer(), list)
}

func (m *mirror) hear(object any) {
	key, err := cache.MetaNamespaceKeyFunc(object)
	if err != nil {
		panic(err)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	m.told[key] = object.(runtime.Object)
	m.notices++
}

func (m *mirror) forget(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		panic(err)
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	delete(m.told, key)
	m.notices++
}

// catchUp lists, and waits until store and handler show the same. What is written meanwhile is waited for too.
func (m *mirror) catchUp(ctx context.Context) string {
	deadline := time.Now().Add(patience)
	for {
		count, difference := m.difference()
		if difference == "" {
			m.lock.Lock()
			defer m.lock.Unlock()
			return fmt.Sprintf("equal %s: %d objects, %d notices", m.kind, count, m.notices)
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Sprintf("different %s: %s", m.kind, difference)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// difference names the first one found, and says how many objects the list has.
func (m *mirror) difference() (int, string) {
	list, err := m.list()
	if err != nil {
		return 0, err.Error()
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return 0, err.Error()
	}
	listed := map[string]runtime.Object{}
	for _, item := range items {
		key, err := cache.MetaNamespaceKeyFunc(item)
		if err != nil {
			return 0, err.Error()
		}
		listed[key] = item
	}
	stored := map[string]runtime.Object{}
	for _, key := range m.store.ListKeys() {
		if object, exists, _ := m.store.GetByKey(key); exists {
			stored[key] = object.(runtime.Object)
		}
	}
	if difference := differ(listed, stored); difference != "" {
		return len(items), "in the store, " + difference
	}
	m.lock.Lock()
	defer m.lock.Unlock()
	if difference := differ(listed, m.told); difference != "" {
		return len(items), "in what the handler was told, " + difference
	}
	return len(items), ""
}

func differ(wanted, found map[string]runtime.Object) string {
	for key, object := range wanted {
		other, there := found[key]
		if !there {
			return key + " is missing"
		}
		if !apiequality.Semantic.DeepEqual(object, other) {
			return key + " is not as in the list"
		}
	}
	for key := range found {
		if _, there := wanted[key]; !there {
			return key + " should be gone"
		}
	}
	return ""
}
