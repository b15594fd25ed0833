"""A shop in Django REST framework."""
# mypy: disable-error-code="import-not-found,import-untyped,misc,untyped-decorator"

from django.urls import path
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.response import Response
from rest_framework.views import APIView


class Order(serializers.Serializer):
    item = serializers.CharField()


class Orders(APIView):
    @extend_schema(request=Order, responses={201: Order})
    def post(self, request):
        return Response(request.data, 201)

    @extend_schema(responses={200: Order(many=True)})
    def get(self, request):
        return Response([])


urlpatterns = [path("orders", Orders.as_view())]
